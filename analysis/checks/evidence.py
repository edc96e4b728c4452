"""What may the record of a trial hold? The only place that asks which kind of engine it was."""

from analysis.checks.network.rates import SHAPED_IN_CODE
from analysis.reading.run_table import TrialTable


def in_containers(trial: TrialTable) -> bool:
    """Whether nodes had quotas and a kernel of their own to ask; told by name, since missing evidence tells nothing."""
    return trial.status.get("engine") == "docker"


def in_virtual_time(trial: TrialTable) -> bool:
    """Whether the host's load could not matter."""
    return trial.status.get("engine") == "simulated"


def shaped_by_kernel(trial: TrialTable) -> bool:
    """Whether packets passed links that a kernel shaped: they can be probed, and queues count what they drop."""
    by = {shaped.get("rung") for shaped in (trial.status.get("shaping") or {}).values()}
    return not by <= set(SHAPED_IN_CODE) if by else in_containers(trial)
