"""End of a metered process."""

import atexit
import sys
import threading

from .session import Session

DESTROY_TIMEOUT_S = 10.0
NO_GPU_ERRORS = (  # of different versions of PyTorch, built with or without CUDA
    "Torch not compiled with CUDA enabled",
    "Found no NVIDIA driver",
    "No CUDA GPUs are available",
    "no NVIDIA GPU",
    "requires CUDA support",
    "Cannot access accelerator device when none is available",
    "has no attribute '_cuda_",
    "on a CUDA device but torch.cuda.is_available() is False",  # torch.load
)
NO_GPU_ADVICE = (
    "ensayo: commands run on the CPU; write device = 'cuda' if torch.cuda.is_available() else 'cpu', use .to(device) "
    "and map_location=device, and call functions of torch.cuda, and pin_memory, only for 'cuda'\n"
)


def end_at_exit(session: Session) -> None:
    """End the metering and destroy the process groups when the interpreter exits. The exit code stays."""
    atexit.register(_end, session)


def _end(session: Session) -> None:
    if session.is_in_child:
        return
    error = script_error()
    if any(text in error for text in NO_GPU_ERRORS):
        sys.stderr.write(NO_GPU_ADVICE)
    session.finish(error)
    destroy_process_groups()


def script_error() -> str:
    """Return the uncaught exception that ends the script, or an empty text."""
    error = getattr(sys, "last_value", None)
    return "" if error is None else f"{type(error).__name__}: {error}"


def destroy_process_groups() -> None:
    """Destroy the process groups that the script has left: gloo's threads may abort a process that exits with them.

    A group whose collectives wait for other ranks is left after a time, as the script has left it.
    """
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return
    thread = threading.Thread(target=distributed.destroy_process_group, daemon=True)
    try:
        thread.start()
    except RuntimeError:  # Python 3.12.0 and 3.12.1 start no threads at exit
        distributed.destroy_process_group()
    else:
        thread.join(DESTROY_TIMEOUT_S)
