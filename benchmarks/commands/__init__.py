"""Benchmark of users' training commands on shaped links: collectives and paced steps against their closed forms.

cases           rows of the benchmark: their trials and limits
measurements    runs of the cases in turns, and the ratios of each row
metering_cost   time that the metering adds to a collective
results_page    table of the rows
scripts         training scripts, run unchanged
"""
