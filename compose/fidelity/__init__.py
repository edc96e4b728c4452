"""Is an emulated cluster the one that was asked for? Measurements of this host, each with what it must meet."""
