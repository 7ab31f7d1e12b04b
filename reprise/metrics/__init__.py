"""Metrics of trainers and trackers as one table: run, attempt, metric, step, value.

One reader per format; a cell that cannot be read is left out and counted.
"""

from reprise.metrics.formats.lines import parse_console_line, parse_json_line
from reprise.metrics.read import read_run
from reprise.metrics.table import MetricTable, Series, is_validation, spans

__all__ = [
    "MetricTable",
    "Series",
    "is_validation",
    "parse_console_line",
    "parse_json_line",
    "read_run",
    "spans",
]
