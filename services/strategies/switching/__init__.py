"""Strategies with two training phases: the switch between the phases, its rules, and the hand-over of the model."""
