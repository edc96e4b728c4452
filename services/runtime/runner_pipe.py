"""Named pipe by which the processes of a trial notice that the runner has ended.

The runner is the process that runs a trial. Only the runner holds the write end of the pipe, and the kernel closes the
write end when the runner ends, also when the runner is killed. There is no time limit: a paused runner keeps the pipe
open, and a paused node notices the end of the runner when the node continues.

`python -m services.runtime.runner_pipe PIPE` waits until the runner has ended.
"""

import os
import select
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread

EXIT_RUNNER_ENDED = 5


@contextmanager
def hold_runner_pipe(pipe_path: Path) -> Iterator[None]:
    """Create a named pipe, and hold its write end in this process during the `with` block.

    Programs that this process starts do not inherit the write end. A copy of this process made by `os.fork` does.
    """
    os.mkfifo(pipe_path, 0o600)
    # Opening only the write end would wait for a reader.
    pipe = os.open(pipe_path, os.O_RDWR)
    try:
        yield
    finally:
        os.close(pipe)


def exit_when_runner_ends(pipe_path: Path, process_name: str) -> None:
    """Make this process exit as soon as the runner has ended, which may be now.

    Args:
        pipe_path: pipe whose write end the runner holds.
        process_name: name of this process, for the message on standard error.
    """
    # Without O_NONBLOCK, this would wait for the write end of a runner that has ended already.
    pipe = os.open(pipe_path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        os.read(pipe, 1)
    except BlockingIOError:  # the runner holds the write end
        exit_at_hang_up(pipe, process_name)
    else:
        _exit_with_message(process_name)


def exit_at_hang_up(pipe: int, process_name: str) -> None:
    """Make this process exit as soon as the write end of a pipe is closed. The data in the pipe are not read.

    Args:
        pipe: file descriptor of the read end.
        process_name: name of this process, for the message on standard error.
    """
    Thread(target=_wait_for_hang_up_and_exit, args=(pipe, process_name), daemon=True).start()


def wait_for_hang_up(pipe: int) -> None:
    """Wait until the write end of a pipe is closed, and leave the data in the pipe unread.

    Args:
        pipe: file descriptor of the read end. The write end must have been open when this end was opened.
    """
    hang_up = select.poll()
    hang_up.register(pipe, 0)  # 0: data in the pipe does not end the wait
    hang_up.poll()


def _wait_for_hang_up_and_exit(pipe: int, process_name: str) -> None:
    wait_for_hang_up(pipe)
    _exit_with_message(process_name)


def _exit_with_message(process_name: str) -> None:
    """Exit at once, without the clean-up of other threads, which may wait for nodes that have ended.

    The message is left out if standard error is closed or if its reader is slow.
    """
    message = f"the runner has ended, so {process_name} ends\n"
    with suppress(OSError, ValueError, AttributeError):  # standard error may be closed
        standard_error = sys.stderr.fileno()  # descriptor 2 may be a pipe that a thread of this process reads
        _, writable, _ = select.select([], [standard_error], [], 0)
        if writable:
            os.write(standard_error, message.encode())
    os._exit(EXIT_RUNNER_ENDED)


if __name__ == "__main__":
    exit_when_runner_ends(Path(sys.argv[1]), "the process")
    while True:
        signal.pause()
