"""Readers of public MLPerf results: CSV tables, result folders and logs.

Logs are checked by compliance rules, and results are scored.
"""
