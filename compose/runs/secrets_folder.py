"""Temporary folder of a trial with the certificates and keys of its nodes, and with the runner pipe.

The pipe is `services.runtime.runner_pipe`.
"""

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from compose.runs.certificates import issue_certificates
from compose.runs.labels import SECRETS_PREFIX
from services.runtime.runner_pipe import hold_runner_pipe

RUNNER_PIPE_FILE = "runner"  # in the folder of the secrets


@contextmanager
def open_secrets_folder(run_name: str, node_names: Iterable[str]) -> Iterator[Path]:
    """Create a temporary folder with the certificates and keys of nodes, and remove the folder at the end.

    The folder also contains the runner pipe, whose write end this process holds during the `with` block. If this
    process is killed, the nodes end by themselves; `ensayo clean` removes the folder.
    """
    with tempfile.TemporaryDirectory(prefix=f"{SECRETS_PREFIX}{run_name}-") as name:
        folder = Path(name)
        issue_certificates(run_name, node_names, folder)
        with hold_runner_pipe(folder / RUNNER_PIPE_FILE):
            yield folder
