"""Rehearsal of a real cluster: step times measured there, beside those that Ensayo predicts for it."""
