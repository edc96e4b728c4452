"""Benchmark of training steps against PyTorch on the same host (`make bench-compute`).

cases            the measured models, each with dataset, batch and optimiser
torch_models     the same models in PyTorch, one file per kind; torch_detection and torch_transformer: shared parts
batches          batches of a case, the same for both
training         training loops of Ensayo and of PyTorch
step_times       seconds per step of both, in one process
step_memory      peak memory of one of both, in a process of its own
glibc            counts and releases memory of the allocator
user_module_times    forward and backward pass of users' modules (`make bench-modules`); user_modules: the modules
results          ratios, gates, tables and the results page

To add a model: add `torch_models/<kind>.py` with a function `build_module(model, learning_task)`, and a line to `CASES`
in `cases.py`. A loss that PyTorch's side does not know yet is added to `LOSSES` in `torch_training.py`.
"""
