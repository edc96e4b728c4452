"""Comparisons of groups of trials: by time, by quality, by number of workers, and with the noise of seeds."""
