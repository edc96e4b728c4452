"""Models of Ensayo in PyTorch: one file per kind of model, with the function `build_module(model, learning_task)`.

A module takes samples as Ensayo's dataset gives them. Its parameters come in the order of Ensayo's layout.
"""
