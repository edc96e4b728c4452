"""A node of a trial: its assembly, its process, the virtual-time run, the event runner."""
