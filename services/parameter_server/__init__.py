"""Policies of parameter servers, such as synchronisation and update rules.

Further policies are staleness weights, delay compensation and placement.
"""
