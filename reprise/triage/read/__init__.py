"""Reading logs: files, lines, their prefixes and clocks, tracebacks."""
