"""What a recipe needs: memory of a GPU and a host, time, disk.

The formulas state their source and the measurement they were checked against.
"""
