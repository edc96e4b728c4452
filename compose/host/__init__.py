"""Facts about this host: supported features, load, and whether the host is fast enough for a scenario."""
