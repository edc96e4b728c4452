"""Check that the collectives of a user's command crossed the shaped network."""

from collections.abc import Callable

import pytest

from analysis.checks.network.shaped_interface import check_shaped_interface
from analysis.checks.verdict import VerdictLevel
from analysis.reading.run_table import TrialLogTables

MakeTrial = Callable[..., TrialLogTables]
StopLine = Callable[..., str]


@pytest.mark.parametrize(
    ("payload", "interface", "level"),
    [
        (1_000_000, 1_010_000, VerdictLevel.VALID),
        (1_000_000, 12_000, VerdictLevel.INVALID),
        (1_000_000, None, VerdictLevel.VALID),
        (0, 5, VerdictLevel.VALID),
    ],
)
def test_collectives_must_be_seen_on_the_shaped_interface(
    make_trial: MakeTrial, stop_line: StopLine, payload: int, interface: int | None, level: VerdictLevel
) -> None:
    """A script that binds the control network would measure links that are not shaped."""
    counters = {"payload_bytes_sent": payload, "interface_bytes_sent": interface}
    trial = make_trial({"worker-0": [stop_line("worker-0", **counters)]}, workload_kind="command")

    verdict = check_shaped_interface(trial)

    assert verdict.level == level
    is_named = "worker-0 sent 1,000,000 bytes in collectives, but only 12,000" in verdict.reason
    assert is_named == (level == VerdictLevel.INVALID)
