"""Parts that all figures share: style, labels, marks of balance points, and saving to files."""
