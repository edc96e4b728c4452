"""What to do about an invalid run: advice fits the check that failed, or there is none."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from analysis.checks import fidelity
from analysis.checks.fidelity import list_remedies, read_trial_remedies, run_trial_checks
from analysis.checks.verdict import NOT_ENFORCED_REMEDY, SLOW_HOST_REMEDY, WRONG_LINKS_REMEDY
from analysis.metrics.achieved_properties import achieved_properties
from analysis.reading.run_folder import RunFolder
from analysis.reading.run_table import TrialTable

MakeTrial = Callable[..., TrialTable]
LATE = {"worker-0": {"deadlines": 10, "missed_deadlines": 9, "steps": 0}}
WORKER: dict[str, Any] = {"name": "worker-0", "role": "worker"}
LOSSY = {"paths": [{"source": "server-0", "target": "worker-0", "losses": [{"kind": "independent", "share": 0.1}]}]}
SLOW = {"rung": "tc-htb", "uplink_bps": 1e8, "read_back_uplink_bps": 5e7}


def advised(trial: TrialTable) -> list[str]:
    return list_remedies(trial, run_trial_checks(trial))


def late(make_trial: MakeTrial, stop_line: Callable[..., str], **status: Any) -> TrialTable:
    return make_trial({"worker-0": [stop_line("worker-0", **LATE["worker-0"])]}, status, nodes=[WORKER])


def test_a_host_that_was_too_slow_is_told_to_be_asked_for_less(
    make_trial: MakeTrial, stop_line: Callable[..., str]
) -> None:
    assert advised(late(make_trial, stop_line)) == [SLOW_HOST_REMEDY]


@pytest.mark.parametrize("status", [{"engine": "simulated"}, {"status": "failed", "reason": "out of memory"}])
def test_neither_virtual_time_nor_a_failed_trial_is_given_advice(
    make_trial: MakeTrial, stop_line: Callable[..., str], status: dict[str, str]
) -> None:
    """A simulated host can't be too slow, and why a trial failed stands in its reason."""
    assert advised(late(make_trial, stop_line, **status)) == []


def ended(stop_line: Callable[..., str]) -> dict[str, list[str]]:
    """The whole record of a worker that had nothing to do."""
    return {"worker-0": [stop_line("worker-0", steps=0)]}


def test_what_was_not_enforced_is_not_blamed_on_the_hosts_speed(
    make_trial: MakeTrial, stop_line: Callable[..., str]
) -> None:
    shaping = {"worker-0": {"rung": "fluid", "rungs": {"loss": "none"}}}

    assert advised(make_trial(ended(stop_line), {"shaping": shaping}, nodes=[WORKER], network=LOSSY)) == [
        NOT_ENFORCED_REMEDY
    ]


def test_a_wrong_rate_is_a_matter_of_links(make_trial: MakeTrial, stop_line: Callable[..., str]) -> None:
    trial = make_trial(ended(stop_line), {"shaping": {"worker-0": SLOW}}, nodes=[WORKER | {"uplink_bps": 1e8}])

    assert advised(trial) == [WRONG_LINKS_REMEDY]


def test_advice_on_a_run_stands_there_once(
    make_trial: MakeTrial, stop_line: Callable[..., str], tmp_path: Path
) -> None:
    trial = late(make_trial, stop_line)
    folder = RunFolder(tmp_path)

    fidelity.write_fidelity_json(folder.trial_folders[0], trial, run_trial_checks(trial), achieved_properties(trial))

    assert read_trial_remedies(folder) == [SLOW_HOST_REMEDY]
