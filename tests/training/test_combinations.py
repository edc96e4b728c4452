"""Gossip and asynchronous averaging with events, uneven data, number formats, and targets: combinations of keys.

Each trial is analysed as in a report, so that its verdict has the check of bytes. Virtual time reports a deadlock as an
error.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from analysed_trial import analyse_document

from analysis.results.trial_result import TrialResult

GOSSIP: dict[str, dict[str, Any]] = {
    "d_psgd": {"kind": "d_psgd"},
    "d_psgd, update first": {"kind": "d_psgd", "topology": {"kind": "exponential"}, "order": "update_first"},
    "noloco": {"kind": "noloco", "period": 3},
}
ASYNCHRONOUS: dict[str, dict[str, Any]] = {
    "pairs": {"kind": "partial_all_reduce"},
    "groups of 3": {"kind": "partial_all_reduce", "group_size": 3},
    "ad_psgd": {"kind": "ad_psgd"},
}
STRATEGIES = GOSSIP | ASYNCHRONOUS
every_strategy = pytest.mark.parametrize("name", STRATEGIES)

WORKERS, BATCH, SAMPLES, EPOCHS = 4, 16, 80, 9  # 45 steps, each with 20 ms of compute
WORKER = {"throughput": "200/s", "uplink": "10mbit", "downlink": "10mbit", "delay": "1ms"}
DURING = {"at": {"time": "100ms"}, "lasts": "300ms"}
EVENTS: dict[str, dict[str, Any]] = {
    "slowdown": {"kind": "slowdown", "of": ["worker-1"], "factor": 4, **DURING},
    "pause": {"kind": "pause", "of": ["worker-1"], **DURING},
    "slow uplink": {"kind": "link", "of": ["worker-1"], "uplink": "20kbit", **DURING},
    "delay": {"kind": "link", "of": ["worker-1"], "delay": "60ms", **DURING},
    "partition": {"kind": "partition", "apart": ["worker-1"], **DURING},
    "slowdown at a step": {"kind": "slowdown", "of": ["worker-1", "worker-2"], "factor": 3, "at": {"step": 9}},
}
UNEVEN = {"kind": "sizes", "shares": [5, 3, 1, 1]}
TARGET = {"metric": "mse", "at_most": 0.5}


def run(
    folder: Path, strategy: Mapping[str, Any], events: list[dict[str, Any]] | None = None, **workload: Any
) -> TrialResult:
    """Return the result of a small trial in virtual time, with its verdict."""
    document = {
        "name": "combination",
        "workload": {
            "dataset": {"kind": "synthetic_regression", "samples": 100, "features": 4, "outputs": 2, "hidden": 8},
            "model": {"kind": "mlp", "hidden": [5], "activation": "tanh"},
            "optimiser": {"kind": "momentum", "rate": 0.02},
            "batch": BATCH,
            "epochs": EPOCHS,
            **workload,
        },
        "cluster": {"workers": WORKERS, "worker": WORKER},
        "strategies": {"it": dict(strategy)},
        "events": events or [],
        "baseline": False,
    }
    return analyse_document(document, folder).result


def check_result(result: TrialResult) -> None:
    """Check that a trial has used its budget, and that no check of a report has found anything."""
    assert (result.status, result.verdict, result.reasons) == ("success", "valid", [])
    assert EPOCHS * SAMPLES <= result.samples <= EPOCHS * SAMPLES + BATCH
    assert sum(worker.processed for worker in result.worker_samples) == result.samples


@every_strategy
@pytest.mark.parametrize("event", EVENTS)
def test_an_event_lengthens_the_training_and_ends_in_a_valid_trial(name: str, event: str, tmp_path: Path) -> None:
    """Other workers wait for the disturbed one, or form groups without it; in both cases, its time is missing."""
    undisturbed, disturbed = (
        run(tmp_path / str(number), STRATEGIES[name], events) for number, events in enumerate(([], [EVENTS[event]]))
    )

    check_result(disturbed)
    assert [each.kind for each in disturbed.events] == [EVENTS[event]["kind"]]
    assert disturbed.seconds is not None
    assert undisturbed.seconds is not None
    assert disturbed.seconds > undisturbed.seconds
    if name in GOSSIP:
        assert disturbed.params_sha256 == undisturbed.params_sha256, "events change times, not what is mixed"


@pytest.mark.parametrize("name", ASYNCHRONOUS)
def test_others_do_the_steps_of_a_worker_that_is_slow_from_an_event_on(name: str, tmp_path: Path) -> None:
    """Asynchronous workers share one budget, so that a slow worker trains fewer samples, and others more."""
    slowdown = {"kind": "slowdown", "of": ["worker-1"], "factor": 6, "at": {"time": "20ms"}}

    result = run(tmp_path, STRATEGIES[name], [slowdown])

    check_result(result)
    samples = {worker.worker: worker.processed for worker in result.worker_samples}
    assert samples.pop("worker-1") < min(samples.values()) / 2


@every_strategy
@pytest.mark.parametrize("batch", [16, 17])
def test_workers_with_data_of_their_own_end_in_a_valid_trial(name: str, batch: int, tmp_path: Path) -> None:
    """Shares of a batch differ, and small ones may be empty in the last batch of an epoch."""
    result = run(tmp_path, STRATEGIES[name], partition=UNEVEN, batch=batch)

    assert (result.status, result.verdict, result.reasons) == ("success", "valid", [])
    assert EPOCHS * SAMPLES <= result.samples <= EPOCHS * SAMPLES + batch
    if name in GOSSIP:
        assert [worker.processed for worker in result.worker_samples] == [EPOCHS * part for part in (40, 24, 8, 8)]


@every_strategy
def test_fp64_is_valid_and_doubles_the_bytes_of_gossip(name: str, tmp_path: Path) -> None:
    fp32, fp64 = (run(tmp_path / precision, STRATEGIES[name], precision=precision) for precision in ("fp32", "fp64"))

    check_result(fp32)
    check_result(fp64)
    if name in GOSSIP:  # the steps of asynchronous workers depend on the times of messages
        assert fp64.bytes_sent == {node: 2 * count for node, count in fp32.bytes_sent.items()}


@every_strategy
@pytest.mark.parametrize("every", [16, 48, 80])
def test_a_target_ends_the_training_early_in_a_valid_trial(name: str, every: int, tmp_path: Path) -> None:
    """The last exchange of a period may be missing then, or a group smaller; the check of bytes must know this."""
    result = run(tmp_path, STRATEGIES[name], target=TARGET, evaluate_every=every)

    assert (result.status, result.verdict, result.reasons) == ("success", "valid", [])
    assert result.samples < EPOCHS * SAMPLES / 2
    assert result.samples_to_target is not None
    assert result.samples_to_target <= result.samples
    assert result.evaluated_model == ("mean" if name in GOSSIP else "worker_0_then_mean")
    if name in GOSSIP:
        assert result.final["mse"] <= TARGET["at_most"], "the evaluated mean is the result"


@every_strategy
@pytest.mark.parametrize("event", ["pause", "partition"])
def test_a_training_with_a_target_ends_under_an_event(name: str, event: str, tmp_path: Path) -> None:
    """The run ends while a worker is paused or cut off, which must not wait for messages that never come."""
    endless = EVENTS[event] | {"at": {"time": "30ms"}, "lasts": "2s"}

    result = run(tmp_path, STRATEGIES[name], [endless], target=TARGET, evaluate_every=16)

    assert (result.status, result.reasons) == ("success", [])


@every_strategy
def test_all_keys_together_end_in_a_valid_trial(name: str, tmp_path: Path) -> None:
    result = run(
        tmp_path,
        STRATEGIES[name],
        [EVENTS["slowdown"], EVENTS["delay"]],
        partition=UNEVEN,
        micro_batches=3,
        precision="fp64",
        target=TARGET,
        evaluate_every=32,
    )

    assert (result.status, result.verdict, result.reasons) == ("success", "valid", [])
