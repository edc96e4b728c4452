"""Execution of a run, from its folder to clean-up.

The package creates the run folder, runs the trials one after the other, supervises them, and handles interruption and
clean-up.
"""
