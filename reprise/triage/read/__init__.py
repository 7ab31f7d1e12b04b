"""Reading logs: files and their blocks, the prefixes and clocks of lines, tracebacks.

What a line is belongs here. What it means for the job is judged one folder above.
"""
