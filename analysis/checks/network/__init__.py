"""Checks of the emulated network: shaping mechanisms, link rates, delays, dropped packets, bytes."""
