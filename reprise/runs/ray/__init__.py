"""Ray as a run uses it: the Jobs API, nodes, a private Ray of the run's own, the job's package.

Processes and shared memory of a private Ray are recorded and removed here.
"""
