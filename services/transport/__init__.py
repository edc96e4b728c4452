"""Implementations of the transport interface: `grpc` and `tcp` between processes, `virtual` within one process."""
