"""Reading of public MLPerf results: tables, result folders, logs, compliance, scores."""
