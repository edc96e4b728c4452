"""Metrics of trials whose strategy is chosen among candidates, or switches during the trial."""
