"""From a scenario to nodes that run: load it, choose an engine, render, shape, supervise, remove."""
