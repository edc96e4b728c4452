"""The report of a run: page, headline, summary text."""
