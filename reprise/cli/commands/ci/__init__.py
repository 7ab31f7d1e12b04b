"""`reprise ci init`: jobs for the user's own CI.

What the jobs run are commands of other groups.
"""

from reprise.cli.commands.ci.init import register

__all__ = ["register"]
