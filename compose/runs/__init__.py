"""Execution of a run: run folder, trials one after the other, supervision, interruption, clean-up."""
