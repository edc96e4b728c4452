"""Finding, parsing and validating scenario files.

Every problem is reported with file, line and key.
"""
