"""Seams and services of a running node: clock, device, transport, control, run log, pacing, identity."""
