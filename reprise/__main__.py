"""`python -m reprise` is the `reprise` command."""

from reprise.cli import main

main()
