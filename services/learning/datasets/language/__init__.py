"""An artificial language: its grammar, a source of its tokens, and the dataset."""
