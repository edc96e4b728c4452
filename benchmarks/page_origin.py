"""Where the numbers of a results page were measured."""

from compose.runs.git_commit import git_commit_of_checkout


def describe_origin(machine: str) -> str:
    """Return the machine and the commit of the measurement, as text for the page."""
    commit = git_commit_of_checkout()
    changes = " with uncommitted changes" if commit.get("dirty") else ""
    return f"{machine}, commit {commit.get('id', 'unknown')[:8]}{changes}"
