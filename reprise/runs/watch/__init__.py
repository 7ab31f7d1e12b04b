"""What is seen of a run while it trains: steps, alarms, pending resources, the live view.

Nothing here changes a run.
"""
