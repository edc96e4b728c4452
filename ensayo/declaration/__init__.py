"""Scenarios that are declared with Python objects, for example in a notebook.

document           the content of a scenario file, built from keyword arguments
sections           typed sections: cluster, worker, server, link
code_references    FILE:NAME of classes and functions
cell_source        source text of classes and functions in notebook cells
"""
