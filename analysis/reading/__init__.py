"""Readers of a run folder: plans, statuses, node logs, tables of a trial, and damage in the files."""
