"""Functions that all figures use.

They set the style, draw labels, mark the worker counts that rules choose, and save figures to files.
"""
