"""Strategies with two training phases: rules for the time of the switch, the strategy switch, and state transfer."""
