"""Warm-up of deep gradient compression: the density of each stage, exact bytes, predicted times, and rejected keys."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from services.compressors import CompressorSeed, Dgc, LargeArraysOnly, list_format_stages
from services.plan.prediction import FORMAT_STAGES_REASON

Simulate = Callable[..., Any]
GRADIENTS = np.random.default_rng(1).standard_normal((12, 10_000)).astype("float32")
LINKS = {"worker": {"throughput": "1000/s", "uplink": "100kbit", "downlink": "100kbit"}}
SGD = {"kind": "sgd", "rate": 0.05}


def strategy(**keys: Any) -> dict[str, Any]:
    return {"kind": "all_reduce", "compress": {"kind": "dgc", "momentum": 0.5} | keys}


def test_density_falls_in_four_stages_as_in_the_paper() -> None:
    """25, 6.25, 1.56 and 0.4 % of the entries, and then 0.1 %."""
    compressor = Dgc(warm_up_steps=8)
    state, counts = compressor.init_state(10_000, CompressorSeed()), []
    for gradient in GRADIENTS:
        payload, state = compressor.compress(gradient, state)
        counts.append(payload.arrays[0].size)

    assert counts == [2512, 2512, 631, 631, 158, 158, 40, 40, 10, 10, 10, 10]


@pytest.mark.parametrize(
    "compressor",
    [
        Dgc(ratio=0.01, warm_up_steps=8),
        LargeArraysOnly(inner=Dgc(ratio=0.01, warm_up_steps=8), min_entries=500).fit_to_model(((100, 99), (100,))),
    ],
    ids=["all arrays", "large arrays"],
)
def test_stages_state_the_size_of_every_payload(compressor: Dgc | LargeArraysOnly) -> None:
    """Links are compared with the bytes that the plan computes from the stages."""
    state, stages = compressor.init_state(10_000, CompressorSeed()), list_format_stages(compressor)
    for number, gradient in enumerate(GRADIENTS):
        payload, state = compressor.compress(gradient, state)
        of_vector = next((stage.compressor for stage in stages if number < stage.end), compressor)
        assert payload.formats == of_vector.payload_dtypes_and_sizes(10_000, "float32")
    assert [stage.end for stage in stages] == [2, 4, 6, 8]


def test_no_gradient_is_lost_between_stages() -> None:
    """What a stage did not send stays in the state for the next one."""
    compressor = Dgc(ratio=0.01, momentum=0, warm_up_steps=8)
    state, sent = compressor.init_state(10_000, CompressorSeed()), np.zeros(10_000)
    for gradient in GRADIENTS:
        payload, state = compressor.compress(gradient, state)
        sent += compressor.decompress(payload)

    assert sent + state.unsent == pytest.approx(GRADIENTS.astype("float64").sum(axis=0), abs=1e-4)


@pytest.mark.parametrize("gather", ["ring", "tree", "direct"])
def test_every_step_sends_the_bytes_of_its_stage_and_replicas_stay_equal(simulate: Simulate, gather: str) -> None:
    """The step, not the mean over the run, has the planned bytes."""
    trial = simulate(
        strategy(ratio=0.05, warm_up_steps=8) | {"gather": {"kind": gather}}, 3, optimiser=SGD, hash_every_step=True
    )

    stages = trial.plan.format_stages
    assert [stage.end_step for stage in stages] == [2, 4, 6, 8]
    for rank in range(3):
        name = f"worker-{rank}"
        for row in trial.steps(rank):
            stage = next((each for each in stages if row["step"] < each.end_step), trial.plan)
            assert row["bytes_sent"] == stage.bytes_per_step[name]
    digests = {event["value"] for rank in range(3) for event in trial.events(f"worker-{rank}", "node_hash")[-1:]}
    assert len(digests) == 1


def test_predicted_training_time_contains_the_longer_steps_of_the_warm_up(simulate: Simulate) -> None:
    """The closed form of a step describes the steps after the warm-up, and the plan says so."""
    cluster = {"cluster": LINKS, "optimiser": SGD, "epochs": 9}
    trial, constant = (simulate(strategy(ratio=0.05, warm_up_steps=steps), 3, **cluster) for steps in (8, 0))

    rows = trial.steps(0)
    measured_s = max(row["start_s"] + row["step_s"] for row in rows) - rows[0]["start_s"]
    assert trial.plan.predicted_s > 1.02 * constant.plan.predicted_s
    assert measured_s == pytest.approx(trial.plan.predicted_s, rel=0.03)
    assert trial.plan.predicted.step_s == constant.plan.predicted.step_s
    assert trial.plan.predicted.inapplicable_reason == FORMAT_STAGES_REASON
    assert not trial.plan.training_inapplicable_reason
    assert not constant.plan.format_stages


def test_training_with_the_warm_up_of_all_entries_is_training_without(simulate: Simulate) -> None:
    """If all entries are sent in every stage, stages have equal sizes."""
    trials = [simulate(strategy(ratio=1, warm_up_steps=steps), 3, optimiser=SGD) for steps in (0, 8)]

    assert trials[0].params.tobytes() == trials[1].params.tobytes()
