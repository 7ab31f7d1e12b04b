"""The rules of the check, one module a subject; `reprise.recipe.ruleset` lists them all."""
