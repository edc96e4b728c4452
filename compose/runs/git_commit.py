"""The git commit of the code that runs."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

PROJECT_FOLDER = Path(__file__).parents[2]  # in an installed wheel the folder of all packages


def git_commit_of_checkout() -> dict[str, Any]:
    """Return the git commit of this checkout of Ensayo.

    The result also states whether the checkout has uncommitted changes. Return an empty dict outside a checkout; an
    installed wheel may lie in the repository of another project.
    """
    git = shutil.which("git")
    if git is None or not (PROJECT_FOLDER / ".git").exists():
        return {}
    in_project = [git, "-C", str(PROJECT_FOLDER)]
    head = subprocess.run([*in_project, "rev-parse", "HEAD"], capture_output=True, text=True, check=False)  # noqa: S603
    changes = subprocess.run([*in_project, "status", "--porcelain"], capture_output=True, text=True, check=False)  # noqa: S603
    return {"id": head.stdout.strip(), "dirty": bool(changes.stdout.strip())} if head.returncode == 0 else {}
