"""Compressors that a scenario cannot select: other compressors and sums of vectors use them."""
