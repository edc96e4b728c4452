"""Measurement and pacing in a user's process, which trains with `torch.distributed`.

protocol, settings              messages to the node agent; the settings of this process
activation, import_hooks        installation, when PyTorch is imported
session                         metering of this process: its step tracker and the receiver of its steps
step_tracker, step_records      steps, their collectives, exposed and hidden communication
pacer, step_schedule            scheduled times of collectives and updates in a step of declared length
metered_group, metered_work     process group that records each collective, and its handles
collective_sizes                the bytes that are counted for each operation
inner_groups, counting_group    the process group behind it: gloo, Ensayo's collectives, or none in a dry run
torch_hooks, forward_marks      marks of forward passes, backward passes and updates
distributed_hooks               changes to torch.distributed; the error for nccl
agent_client, dry_run           receivers of the steps: the node agent; the file of a dry run
process_exit                    end of the process

A step is everything up to the end of an optimiser's update. Consecutive updates belong to one step, if neither a
collective nor a backward pass lies between them: two optimisers that are stepped one after the other make one step.
With gradient accumulation all backward passes before the update belong to the step. A script that steps its optimisers
after a backward pass each, as a GAN does, makes a step of each. A collective that follows an update belongs to the next
step. A step that a gradient scaler skips is part of the next one.

An evaluation between two steps is recognised by forward passes without gradient. It ends with the last of them, or with
the last collective before a forward pass with gradient; the next step begins there. Its collectives are recorded with
the next step, and marked as extra. Forward passes without gradient that precede every step of the dry run are a part of
the step: the target network of a reinforcement learner, or the teacher of a student. Without a dry run, and if its
forward passes compute gradients, an evaluation is a part of the next step.

Collectives of a step are matched to those of the dry run by operation, bytes and data type. Those that a step has
besides them are marked as extra, and not paced.

The first step begins with the first forward pass of a module that no collective outside of a forward pass follows
before the first backward pass. Earlier collectives are those of the start: DDP compares and broadcasts parameters.

Only the process that creates a process group, or updates parameters, is metered: it marks its environment, so that the
processes that it starts are not. A launcher such as torchrun does neither, so its child is metered.
"""
