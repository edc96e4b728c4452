"""Nodes of a trial: construction, node process, and simulation in virtual time.

Other modules apply scenario events in a node and measure the cost of messages.
"""
