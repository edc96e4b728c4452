"""gRPC implementations of the data streams and of the calls to the coordinator.

Only this package and the `service.py` modules use gRPC; gRPC's errors leave the package as Ensayo's own errors.
"""
