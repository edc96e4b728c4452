"""Interfaces and services of a running node, such as clock, transport and log.

Others are the compute device, the client of the coordinator, pacing of compute, and identity.
"""
