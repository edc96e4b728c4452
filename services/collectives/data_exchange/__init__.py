"""Collectives that are not all-reduces: all-gather, reduce-scatter and broadcast, as schedules of transfers.

The executor of all-reduces runs them too. A chunk may be empty, and chunks may differ in size.
"""
