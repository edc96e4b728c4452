"""Code that runs in the process of a user's training script, and measures and paces it without a change of the script.

This folder is on the PYTHONPATH of the process.

sitecustomize    the module that Python imports when it starts
ensayo_meter     measurement and pacing

The code needs the standard library and the user's PyTorch only, because it runs in the user's environment.
"""
