"""Checks of the emulated network: rates, delays, drops, bytes."""
