"""Entry point of `python -m ensayo`, which runs the command line."""

from ensayo.cli import main

main()
