"""Recipes: compose them with the locked verl's own config files, check them, plan them."""
