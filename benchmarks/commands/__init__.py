"""Benchmark of users' training commands on shaped links: collectives and paced steps against their closed forms.

cases           trials of the benchmark, and the limits of its rows
measurements    runs of the cases in turns, and the ratios of each row
results_page    table of the rows
scripts         training scripts, run unchanged
"""
