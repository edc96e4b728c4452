"""What is decided before a trial starts."""
