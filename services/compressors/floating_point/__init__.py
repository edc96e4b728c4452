"""Floating-point numbers with fewer bits: `fp16`, `bf16`, `fp4`."""
