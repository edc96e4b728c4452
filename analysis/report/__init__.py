"""Report of a run: headline, findings, summary text, and the HTML page with figures."""
