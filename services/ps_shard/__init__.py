"""A server, which holds one range of the parameters: `machine` decides, `loop` acts."""
