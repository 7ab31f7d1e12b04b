"""The user's own CI: init.py writes its files, shape.py is the rehearsal that a job runs."""
