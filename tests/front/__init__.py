"""The front door: environments, make targets, documents, progress."""
