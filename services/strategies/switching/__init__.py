"""Strategies with two training phases: the switch between them, its rules, and the hand-over of the model."""
