"""The emulated cluster: machines, device profiles, links, topologies, events."""
