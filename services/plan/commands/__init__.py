"""Planning of a trial whose workers run a training command of the user."""
