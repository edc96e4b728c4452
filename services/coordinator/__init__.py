"""Who says when a run starts, how good it is and when it ends: `machine` decides, `desk` acts, `service` talks."""
