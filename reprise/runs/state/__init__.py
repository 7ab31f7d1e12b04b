"""The run folder and its state: existing runs, their attempts, their supervisor.

Everything that is written about a run goes through here.
"""
