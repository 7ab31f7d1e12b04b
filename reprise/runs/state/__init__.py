"""The run folder and its state: which runs exist, what they did, who supervises them.

Everything that is written about a run goes through here.
"""
