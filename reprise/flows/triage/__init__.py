"""Triage of runs: what joins the logs of hosts, the run's folder and the engine that judges.

Collecting logs, writing triage.json and packing support bundles belong here. Reading and judging
logs without a run belongs to `reprise/triage`.
"""
