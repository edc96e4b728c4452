"""`python -m ensayo` is the command line."""

from ensayo.cli import main

main()
