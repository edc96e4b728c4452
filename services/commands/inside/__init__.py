"""Folder for the PYTHONPATH of a user's training command, which is measured and paced without a change of its code.

sitecustomize    the module that Python imports when it starts
ensayo_meter     measurement and pacing

The code needs the standard library and the user's PyTorch only, because it runs in the user's environment.
"""
