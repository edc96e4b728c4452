"""Functions that all figures use: style, labels, marks of balance points, and saving of drawings to files."""
