"""Modules of PyTorch as users write them, for `make bench-modules`."""
