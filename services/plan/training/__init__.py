"""Planning of a trial that trains a model: exchanges, shares of a batch, and predicted times."""
