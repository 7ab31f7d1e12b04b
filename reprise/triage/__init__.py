"""The room that finds the cause of a failure in logs."""
