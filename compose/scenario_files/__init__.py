"""Finding, parsing and validating scenario files; every problem is reported with file, line and key."""
