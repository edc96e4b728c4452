"""Functions that all figures use: style, labels, marks at the worker counts that rules choose, saving to files."""
