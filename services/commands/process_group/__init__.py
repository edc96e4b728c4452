"""Process group of torch.distributed that runs collectives with Ensayo's schedules, compressors and transport.

Only this folder imports PyTorch, so nothing imports it unless PyTorch is installed.
"""

from services.commands.process_group.group import EnsayoProcessGroup, make_process_group

__all__ = ["EnsayoProcessGroup", "make_process_group"]
