"""Readers of the files in a run folder.

They read trial plans, statuses and node logs, build the tables of a trial, and find damage in the files.
"""
