"""Strategies with two training phases and a strategy switch between them.

The package has rules for the time of the switch, the strategy switch, and state transfer.
"""
