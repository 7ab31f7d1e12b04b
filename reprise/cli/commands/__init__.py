"""One file a command group, each with `register(app)`.

A command parses its arguments, calls one function and prints the report.
"""
