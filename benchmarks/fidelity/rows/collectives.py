"""Fidelity rows about collectives: measured step time over the closed form, and the order of collectives by speed."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from benchmarks.fidelity.idle_trial import make_trial
from benchmarks.fidelity.row import FidelityGate, FidelityMeasurement
from benchmarks.fidelity.rows.scenarios import CLOSED_FORM
from benchmarks.fidelity.training import synchronous_step_s
from benchmarks.fidelity.trial_cases import (
    MeasuredCase,
    TrialCase,
    TrialRow,
    auto_dilated_cases,
    measurement_of_trials,
)
from compose.engines.containers.engine import DockerEngine
from compose.shaping.htb_tree import DEFAULT_BUFFER_BYTES
from services.plan import Plan

RANK_COUNTS = (2, 4, 8)
COLLECTIVE_KINDS = ("ring", "reduce_to_one", "tree", "double_tree", "recursive_doubling", "halving_doubling")
TWO_LEVEL_KINDS = ("hierarchical", "hierarchical_copy")  # in groups of two ranks, from four ranks on
STEPS_PER_TRIAL, MODEL_OUTPUTS, MIN_RANKED_RATIO = 4, 250, 1.10
# Node links have this buffer by default. It is declared here so that packets that TCP loses in it do not degrade the
# verdict of a trial. The time that losses cost is part of the measured ratio.
LINK_BUFFER = f"{DEFAULT_BUFFER_BYTES}B"


class VectorSize(NamedTuple):
    """Size of the parameter vector, and the limit of its measurements."""

    name: str
    thousand_parameters: int  # number of parameters in thousands
    max_ratio_error: float  # largest relative error of the median step over the closed form


# A gate cannot be narrower than the share of this host in a step. Messages and updates of small vectors use up to a
# tenth of a step, the limit of `dilation: auto`.
MEGABYTE, TEN_MEGABYTES = VectorSize("1 MB", 250, 0.10), VectorSize("10 MB", 2500, 0.05)


def make_collectives_row(rate: str, size: VectorSize) -> TrialRow[float]:
    """Return the row that measures all collectives with vectors of a size on links of a rate."""
    return TrialRow(partial(_make_cases, rate, size), partial(_summarise_collectives, rate, size))


def _make_cases(rate: str, size: VectorSize, engine: DockerEngine) -> list[TrialCase[float]]:
    return [
        case
        for rank_count in RANK_COUNTS
        for kind in (*COLLECTIVE_KINDS, *(TWO_LEVEL_KINDS if rank_count > 2 else ()))  # noqa: PLR2004 - pairs
        for case in _make_collective_case(kind, rank_count, rate, size, engine)
    ]


def _make_collective_case(
    kind: str, rank_count: int, rate: str, size: VectorSize, engine: DockerEngine
) -> list[TrialCase[float]]:
    collective: dict[str, Any] = {"kind": kind} | ({"size": 2} if kind in TWO_LEVEL_KINDS else {})
    worker = {"throughput": "400/s", "uplink": rate, "downlink": rate, "buffer": LINK_BUFFER}
    trial = make_trial(
        {"workers": rank_count, "worker": worker},
        workload=_linear_workload(rank_count, size.thousand_parameters),
        strategies={kind: {"kind": "all_reduce", "collective": collective}},
    )
    return auto_dilated_cases(trial.scenario, engine, _step_over_closed_form, f"{kind}, {rank_count} workers")


def _step_over_closed_form(folder: Path, plan: Plan) -> float:
    return synchronous_step_s(folder, plan) / plan.predicted.step_s


def _linear_workload(rank_count: int, thousand_parameters: int) -> Mapping[str, Any]:
    """Return a workload with a linear model of this size and data for a few steps of one sample per worker."""
    samples = STEPS_PER_TRIAL * rank_count * 5 // 4  # a fifth of the samples is held out for evaluation
    return {
        "dataset": {
            "kind": "synthetic_regression",
            "samples": samples,
            "features": thousand_parameters * 1000 // MODEL_OUTPUTS,
            "outputs": MODEL_OUTPUTS,
        },
        "model": {"kind": "linear"},
        "optimiser": {"kind": "sgd", "rate": 0.0001},
        "batch_per_worker": 1,
        "epochs": 1,
        "stop": "budget",
    }


def _summarise_collectives(
    rate: str, size: VectorSize, measured: Sequence[MeasuredCase[float]]
) -> Iterator[FidelityMeasurement]:
    """Yield a measurement per collective and number of ranks, then counts over all of them."""
    title = f"{size.name} at {rate}"
    for each in measured:
        what = f"{title}, {each.case.label}, dilation {each.plan.dilation:g}: step over {CLOSED_FORM}"
        gate = FidelityGate(median_off=size.max_ratio_error)
        if reason := each.plan.predicted.inapplicable_reason:
            what, gate = f"{what}, which does not apply: {reason}", FidelityGate()
        yield measurement_of_trials(what, "", 1.0, each.values, gate, [each])
    what = (
        f"{title}: pairs of collectives whose predicted times differ by at least 10 %, and whose measured order is the "
        "opposite"
    )
    yield _count_measurement(what, "pairs", _count_misranked_pairs(measured))
    samples = [sample for each in measured for sample in each.samples]
    what = f"{title}: trials that failed or whose verdict is not valid"
    yield _count_measurement(what, f"of {len(samples)}", sum(bool(sample.defect) for sample in samples))


def _count_measurement(description: str, unit: str, count: int) -> FidelityMeasurement:
    """Return a measurement of a count that has to be 0."""
    gate = FidelityGate(at_most=0.0)
    return FidelityMeasurement(what=description, unit=unit, declared=0.0, samples=(float(count),), gate=gate)


def _count_misranked_pairs(measured: Sequence[MeasuredCase[float]]) -> int:
    """Return the number of pairs of collectives whose measured order differs from their predicted order.

    Only pairs with the same number of ranks count whose closed forms apply and differ by more than a tenth.
    """
    predicted = [each for each in measured if each.values and not each.plan.predicted.inapplicable_reason]
    medians = [(each.plan, median(each.values) * each.plan.predicted.step_s) for each in predicted]
    return sum(
        plan.workers == other.workers
        and max(plan.predicted.step_s, other.predicted.step_s)
        > MIN_RANKED_RATIO * min(plan.predicted.step_s, other.predicted.step_s)
        and (plan.predicted.step_s < other.predicted.step_s) != (step_s < other_step_s)
        for (plan, step_s), (other, other_step_s) in combinations(medians, 2)
    )
