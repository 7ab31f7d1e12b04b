"""`reprise recipe list | show | check | plan | convert`.

Arguments that these commands share are in `inputs`.
"""

from reprise.cli.commands.recipe.commands import register

__all__ = ["register"]
