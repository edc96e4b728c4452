"""A run: its folder, its trials one after the other, supervision, interruption, clean-up."""
