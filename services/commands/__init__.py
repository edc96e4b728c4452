"""Users' training commands: how a node runs one, and what is measured of it."""
