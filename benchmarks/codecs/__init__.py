"""Benchmark of compressors on one core (`make bench-codecs`).

cases            the measured compressors, with the goals for their speed
torch_codecs     the same number formats in PyTorch, for some of them
timing           seconds to compress and to decompress, of both
results          rates, goals, the table and the results page
"""
