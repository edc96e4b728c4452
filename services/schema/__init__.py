"""Base classes and types of all records that a user writes: units, components, conflicts, errors."""
