"""The hostfile: which hosts, how many GPUs each, and which one is the head.

Names of hosts are folded and expanded here.
"""
