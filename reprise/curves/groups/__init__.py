"""Two groups of runs: is the change from the first to the second an improvement?

welch.py has the interval between seeds, columns.py what is compared, compare.py the answer,
result.py what is shown of it.
"""

from reprise.curves.groups.compare import GroupOptions, compare_groups
from reprise.curves.groups.result import Comparison

__all__ = ["Comparison", "GroupOptions", "compare_groups"]
