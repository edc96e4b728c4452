"""Links of the emulated cluster: declared properties, fluid model, and conditions that events change."""
