"""The first root cause of a failure, found in the logs of many ranks.

Collecting the logs is the work of `reprise.flows`.
"""
