"""Base of every record that a person may write: units, components, conflicts, errors."""
