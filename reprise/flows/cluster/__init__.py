"""Commands on the hosts of a cluster: what is expected of them, and a Ray from start to end.

`hosts.py` selects and inspects the hosts; `up.py` starts, shows and stops Ray on them.
"""
