"""Checks of the emulated network: shaping mechanisms, link rates, delays, packet drops, bytes."""
