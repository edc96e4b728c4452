"""Remedies for an invalid run: the advice fits the check that failed, or there is none."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from analysis.checks import fidelity
from analysis.checks.fidelity import list_failed_check_remedies, read_failed_check_remedies, run_trial_checks
from analysis.checks.verdict import NOT_ENFORCED_REMEDY, SLOW_HOST_REMEDY, WRONG_LINKS_REMEDY
from analysis.metrics.achieved_properties import list_achieved_properties
from analysis.reading.run_folder import RunFolder
from analysis.reading.run_table import TrialLogTables

MakeTrial = Callable[..., TrialLogTables]
MISSED_DEADLINES = {"worker-0": {"deadlines": 10, "missed_deadlines": 9, "steps": 0}}
WORKER: dict[str, Any] = {"name": "worker-0", "role": "worker"}
LOSSY = {"paths": [{"source": "server-0", "target": "worker-0", "losses": [{"kind": "independent", "share": 0.1}]}]}
WRONG_RATE = {"rung": "tc-htb", "uplink_bps": 1e8, "read_back_uplink_bps": 5e7}


def remedies_of(trial: TrialLogTables) -> list[str]:
    return list_failed_check_remedies(trial, run_trial_checks(trial))


def trial_with_missed_deadlines(make_trial: MakeTrial, stop_line: Callable[..., str], **status: Any) -> TrialLogTables:
    return make_trial({"worker-0": [stop_line("worker-0", **MISSED_DEADLINES["worker-0"])]}, status, nodes=[WORKER])


def test_a_host_that_was_too_slow_gets_the_slow_host_remedy(
    make_trial: MakeTrial, stop_line: Callable[..., str]
) -> None:
    assert remedies_of(trial_with_missed_deadlines(make_trial, stop_line)) == [SLOW_HOST_REMEDY]


def test_commands_are_not_advised_to_use_an_engine_that_cannot_run_them(
    make_trial: MakeTrial, stop_line: Callable[..., str]
) -> None:
    """The engine `simulated` rejects commands."""
    logs = {"worker-0": [stop_line("worker-0", **MISSED_DEADLINES["worker-0"])]}
    verdict = run_trial_checks(make_trial(logs, nodes=[WORKER], workload_kind="command"))["missed_deadlines"]

    assert verdict.reason.endswith("declare slower workers, or raise the dilation")
    assert "simulated" not in verdict.remedy


@pytest.mark.parametrize("status", [{"engine": "simulated"}, {"status": "failed", "reason": "out of memory"}])
def test_simulated_and_failed_trials_get_no_remedy(
    make_trial: MakeTrial, stop_line: Callable[..., str], status: dict[str, str]
) -> None:
    """A simulated host can't be too slow, and the status of a failed trial gives the reason."""
    assert remedies_of(trial_with_missed_deadlines(make_trial, stop_line, **status)) == []


def log_of_idle_worker(stop_line: Callable[..., str]) -> dict[str, list[str]]:
    """The complete log of a worker that did no steps."""
    return {"worker-0": [stop_line("worker-0", steps=0)]}


def test_a_property_that_was_not_enforced_gets_its_own_remedy(
    make_trial: MakeTrial, stop_line: Callable[..., str]
) -> None:
    shaping = {"worker-0": {"rung": "fluid", "rungs": {"loss": "none"}}}

    assert remedies_of(
        make_trial(log_of_idle_worker(stop_line), {"shaping": shaping}, nodes=[WORKER], network=LOSSY)
    ) == [NOT_ENFORCED_REMEDY]


def test_a_wrong_link_rate_gets_the_remedy_for_links(make_trial: MakeTrial, stop_line: Callable[..., str]) -> None:
    trial = make_trial(
        log_of_idle_worker(stop_line), {"shaping": {"worker-0": WRONG_RATE}}, nodes=[WORKER | {"uplink_bps": 1e8}]
    )

    assert remedies_of(trial) == [WRONG_LINKS_REMEDY]


def test_every_remedy_of_a_run_is_listed_once(
    make_trial: MakeTrial, stop_line: Callable[..., str], tmp_path: Path
) -> None:
    trial = trial_with_missed_deadlines(make_trial, stop_line)
    folder = RunFolder(tmp_path)

    fidelity.write_fidelity_json(
        folder.trial_folders[0], trial, run_trial_checks(trial), list_achieved_properties(trial)
    )

    assert read_failed_check_remedies(folder) == [SLOW_HOST_REMEDY]
