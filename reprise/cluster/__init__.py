"""The hosts of a cluster: hostfile, site file, SSH, and the life of Ray on them.

Whether the hosts are ready for training is the doctor's part.
"""
