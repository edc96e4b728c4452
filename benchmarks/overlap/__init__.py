"""Benchmark of the overlap of exchange and compute: against its bound, by priority, and beside PyTorch DDP.

cases         rows of the benchmark: their trials and limits
results_page  table and page of the rows
scripts       training script with DistributedDataParallel
"""
