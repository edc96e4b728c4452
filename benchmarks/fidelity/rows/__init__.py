"""Rows of the fidelity benchmark, grouped by the subject that they measure."""
