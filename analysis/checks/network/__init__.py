"""Checks of the emulated network: mechanisms, rates, delays, dropped packets, bytes."""
