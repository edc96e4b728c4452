"""Implementations of the transport interface for messages between nodes.

`grpc` and `tcp` work between processes, `virtual` within one process.
"""
