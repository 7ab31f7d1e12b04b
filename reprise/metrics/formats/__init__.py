"""One reader a format: lines of text, tables, and folders of trackers.

Each gives its rows to rows.Rows; read.py decides which one a path needs.
"""
