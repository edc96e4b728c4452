"""Facts about this host: what it can emulate, how busy it is, and whether it can carry a scenario."""
