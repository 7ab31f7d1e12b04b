"""The hosts of a cluster: hostfile, site file, SSH; start, status and stop of Ray on them.

doctor/ checks whether the hosts are ready for training.
"""
