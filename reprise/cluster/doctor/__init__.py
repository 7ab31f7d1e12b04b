"""The doctor: one probe on each host, facts out of its answer, rules on the facts.

A rule reports passed, failed or unknown for each host.
"""
