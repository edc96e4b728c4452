"""Container image of the nodes: its build files, and the code that builds it."""
