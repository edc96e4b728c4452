"""Readers of public MLPerf results: CSV tables, result folders and logs, with compliance rules and scores."""
