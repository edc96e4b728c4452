"""Output of the command line on a terminal: tables, lines of text, and the progress of a run."""
