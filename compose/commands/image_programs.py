"""Programs in throw-away containers of an image, without network and without privileges."""

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from uuid import uuid4

from compose.host.host_facts import container_user
from compose.runs.host_program import run_host_program
from compose.runs.labels import RUN_LABEL

RUN_NAME = "dry-run"  # label of the containers, by which `ensayo clean` finds them
KILLED_EXIT_CODE = 137  # of a program that `timeout` or the kernel has killed
START_TIMEOUT_S = 60.0  # for the start and the removal of a container


def run_in_container(
    image: str,
    words: Sequence[str],
    timeout_s: float,
    *,
    user: str | None = None,
    environment: Mapping[str, str] | None = None,
    folders: Mapping[Path, tuple[str, bool]] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a program in a new container, and return its exit code and output.

    The container ends after `timeout_s`, even if this process is killed.

    Args:
        image: tag or id of an image on the Docker engine.
        words: program and its arguments, without the entry point of the image.
        timeout_s: wall seconds after which the program is killed.
        user: uid:gid; default: the user of nodes.
        environment: variables in addition to those of the image.
        folders: folder of this host -> its path in the container, and whether it is writable.

    Raises:
        subprocess.TimeoutExpired: the program has run longer than `timeout_s`.
    """
    name = f"ensayo-{RUN_NAME}-{uuid4().hex[:12]}"
    options = [f"--name={name}", f"--label={RUN_LABEL}={RUN_NAME}", f"--user={user or container_user()}"]
    options += [f"--env={key}={value}" for key, value in (environment or {}).items()]
    for folder, (target, is_writable) in (folders or {}).items():
        options.append(f"--mount=type=bind,source={folder},target={target}{'' if is_writable else ',readonly'}")
    isolation = ["--rm", "--init", "--network=none", "--read-only", "--tmpfs=/tmp:mode=1777", "--cap-drop=ALL"]
    isolation += ["--security-opt=no-new-privileges", "--workdir=/tmp", "--entrypoint=", "--no-healthcheck"]
    limited = ["timeout", "--signal=KILL", f"{timeout_s:g}", *words]
    start_s = time.monotonic()
    try:
        process = run_host_program(
            ["docker", "run", *isolation, *options, image, *limited], timeout_s + START_TIMEOUT_S
        )
    except BaseException:
        run_host_program(["docker", "rm", "--force", "--volumes", name])
        raise
    if process.returncode == KILLED_EXIT_CODE and time.monotonic() - start_s >= timeout_s:
        raise subprocess.TimeoutExpired(list(words), timeout_s)
    return process


def give_to_container_user(folder: Path) -> None:
    """Make the user of nodes the owner of a folder and its content, where this process may do so."""
    if os.getuid() == 0:
        uid, gid = map(int, container_user().split(":"))
        for path in (folder, *folder.rglob("*")):
            os.chown(path, uid, gid, follow_symlinks=False)
