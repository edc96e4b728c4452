"""Endurance benchmark (`make bench-endurance`): what is left on a host after many interrupted and long runs."""
