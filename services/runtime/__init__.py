"""Interfaces and services of a running node: clock, compute device, transport, coordinator, log, pacing, identity."""
