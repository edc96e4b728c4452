"""The `docker` engine: containers of a trial, their links, probes and events."""
