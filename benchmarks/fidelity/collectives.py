"""Fidelity rows about collectives: measured step time over the closed form, and the order of collectives by speed."""

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import combinations
from statistics import median
from typing import Any, NamedTuple, TypeAlias

from benchmarks.fidelity.idle_trial import make_trial, make_trial_plan
from benchmarks.fidelity.row import FidelityGate, FidelityMeasurement
from benchmarks.fidelity.scenarios import CLOSED_FORM
from benchmarks.fidelity.training import VerdictReader, run_trial, synchronous_step_s
from compose.engines.containers.engine import DockerEngine
from compose.host.capacity_check import TrialHostDemand
from compose.runs.run import check_host_capacity
from compose.shaping.htb_tree import DEFAULT_BUFFER_BYTES
from services.scenario.scenario import AUTO
from services.schema.errors import HostError
from services.schema.units import Rate

RANK_COUNTS = (2, 4, 8)
COLLECTIVE_KINDS = ("ring", "reduce_to_one", "tree", "double_tree", "recursive_doubling", "halving_doubling")
TWO_LEVEL_KINDS = ("hierarchical", "hierarchical_copy")  # in groups of two ranks, from four ranks on
STEPS_PER_TRIAL, MODEL_OUTPUTS, MIN_RANKED_RATIO = 4, 250, 1.10
# Node links have this buffer by default. It is declared here so that packets that TCP loses in it do not degrade the
# verdict of a trial. The time that losses cost is part of the measured ratio.
LINK_BUFFER = f"{DEFAULT_BUFFER_BYTES}B"
EXTRA_TRIALS = 2  # further trials of a collective whose first trial is outside its gate
MAX_ATTEMPTS, RETRY_PAUSE_S = 3, 20.0  # for a trial that is not valid: other users of the host may need it for a while


class VectorSize(NamedTuple):
    """Size of the parameter vector, and the limits of its measurements."""

    thousand_parameters: int  # number of parameters in thousands
    max_ratio_error: float  # largest relative error of the measured step over the closed form
    overhead_factor: float  # multiplies the cost of messages and updates in the check, which allows a tenth of a step


# A gate cannot be narrower than the share of this host in a step, about one hundredth. Small vectors need few messages
# and are admitted at dilations at which the sockets of a root store its totals while the root begins the next step:
# earlier than any closed form predicts.
VECTOR_SIZES = {"1 MB": VectorSize(250, 0.10, 16), "10 MB": VectorSize(2500, 0.05, 8)}
# Link rates in wall time. On slower links, messages wait longer than the timers of TCP, which are not dilated. On
# faster links, the streams of a root share its uplink unequally: its first total arrives a tenth of a step before its
# last, and the worker that has it pushes the next vector on an idle downlink.
MIN_WALL_RATE_BPS, MAX_WALL_RATE_BPS = 15e6, 80e6


class CollectiveMeasurement(NamedTuple):
    """Step times of a collective among some ranks, relative to the closed form; one ratio per trial."""

    kind: str
    rank_count: int
    predicted_s: float  # virtual seconds of a step
    step_ratios: tuple[float, ...]  # measured over predicted step
    reasons: str = ""  # why the verdict of a trial is not valid
    repeated_trials: int = 0  # trials that were measured again because they failed or their verdict was not valid

    @property
    def median_ratio(self) -> float:
        """Median over the trials of the measured over the predicted step time."""
        return median(self.step_ratios)

    @property
    def measured_s(self) -> float:
        """Measured step time in virtual seconds."""
        return self.median_ratio * self.predicted_s

    def __str__(self) -> str:
        """Return kind and median ratio, with notes on repeated trials and on verdicts that are not valid."""
        notes = []
        if len(self.step_ratios) > 1:
            notes.append(f"median of {', '.join(f'{ratio:.3f}' for ratio in self.step_ratios)}")
        if self.repeated_trials:
            notes.append(f"{self.repeated_trials} measured again")
        if self.reasons:
            notes.append(f"not valid: {self.reasons}")
        return f"{self.kind} {self.median_ratio:.3f}" + (f" ({'; '.join(notes)})" if notes else "")


VerdictRowFunction: TypeAlias = Callable[[VerdictReader, DockerEngine, int], list[FidelityMeasurement]]


def measure_collectives_100mbit(
    read_verdict_reasons: VerdictReader,
    engine: DockerEngine,
    rounds: int,  # noqa: ARG001 - see `_measure_collectives`
) -> list[FidelityMeasurement]:
    """Measure all collectives with vectors of 1 and 10 MB on links of 100 Mbit/s."""
    return list(_measure_collectives(engine, "100mbit", read_verdict_reasons))


def measure_collectives_1gbit(
    read_verdict_reasons: VerdictReader,
    engine: DockerEngine,
    rounds: int,  # noqa: ARG001 - see `_measure_collectives`
) -> list[FidelityMeasurement]:
    """Measure all collectives with vectors of 1 and 10 MB on links of 1 Gbit/s."""
    return list(_measure_collectives(engine, "1gbit", read_verdict_reasons))


def _measure_collectives(
    engine: DockerEngine, rate: str, read_verdict_reasons: VerdictReader
) -> Iterator[FidelityMeasurement]:
    """Yield the measurements of all collectives at a link rate. Rounds are not used: a sample is one collective."""
    for name, size in VECTOR_SIZES.items():
        measured = [
            _measure_until_near(
                partial(_measure_collective, engine, kind, rank_count, rate, size, read_verdict_reasons),
                size.max_ratio_error,
            )
            for rank_count in RANK_COUNTS
            for kind in _collective_kinds(rank_count)
        ]
        for rank_count in RANK_COUNTS:
            of_rank_count = [each for each in measured if each.rank_count == rank_count]
            details = ", ".join(map(str, of_rank_count))
            yield FidelityMeasurement(
                what=f"{name} at {rate}, {rank_count} workers: median step over {CLOSED_FORM}: {details}",
                unit="ratio",
                declared=1.0,
                samples=tuple(each.median_ratio for each in of_rank_count),
                gate=FidelityGate(each_off=size.max_ratio_error),
            )
        yield FidelityMeasurement(
            what=f"{name} at {rate}: pairs of collectives, predicted a tenth apart, that containers rank the other way",
            unit="pairs",
            declared=0.0,
            samples=(float(_count_misranked_pairs(measured)),),
            gate=FidelityGate(at_most=0.0),
        )
        yield FidelityMeasurement(
            what=f"{name} at {rate}: collectives with a trial whose verdict is not valid",
            unit=f"of {len(measured)}",
            declared=0.0,
            samples=(float(sum(bool(each.reasons) for each in measured)),),
            gate=FidelityGate(at_most=0.0),
        )


def _collective_kinds(rank_count: int) -> Sequence[str]:
    return (*COLLECTIVE_KINDS, *(TWO_LEVEL_KINDS if rank_count > 2 else ()))  # noqa: PLR2004 - pairs


def _measure_until_near(measure: Callable[[], CollectiveMeasurement], max_ratio_error: float) -> CollectiveMeasurement:
    """Measure one trial of a collective, or three if the ratio of the first is outside its limit.

    A disturbed host is slow once, a slow collective always.

    Raises:
        HostError: all attempts of a trial failed.
    """
    trials = [_retry_until_valid(measure)]
    if abs(trials[0].median_ratio - 1) > max_ratio_error:
        trials += [_retry_until_valid(measure) for _ in range(EXTRA_TRIALS)]
    return trials[0]._replace(
        step_ratios=tuple(trial.median_ratio for trial in trials),
        reasons="; ".join(dict.fromkeys(trial.reasons for trial in trials if trial.reasons)),
        repeated_trials=sum(trial.repeated_trials for trial in trials),
    )


def _retry_until_valid(measure: Callable[[], CollectiveMeasurement]) -> CollectiveMeasurement:
    """Return the first trial whose verdict is valid, else the last trial that succeeded.

    Most verdicts that are not valid come from other programs that use the cores of this host.

    Raises:
        HostError: no attempt succeeded.
    """
    not_valid: CollectiveMeasurement | None = None
    failure = HostError("no attempt was made")
    for earlier_attempts in range(MAX_ATTEMPTS):
        if earlier_attempts:
            time.sleep(RETRY_PAUSE_S)
        try:
            trial = measure()._replace(repeated_trials=earlier_attempts)
        except HostError as error:
            failure, reason = error, str(error)
        else:
            if not trial.reasons:
                return trial
            not_valid, reason = trial, trial.reasons
        sys.stderr.write(f"attempt {earlier_attempts + 1} of {MAX_ATTEMPTS}: {reason}\n")
    if not_valid is None:
        raise failure
    return not_valid._replace(repeated_trials=MAX_ATTEMPTS - 1)


def _measure_collective(
    engine: DockerEngine,
    kind: str,
    rank_count: int,
    rate: str,
    vector_size: VectorSize,
    read_verdict_reasons: VerdictReader,
) -> CollectiveMeasurement:
    """Run one trial of a collective, at the dilation that `_choose_dilation` returns, and measure its step time."""
    collective: dict[str, Any] = {"kind": kind} | ({"size": 2} if kind in TWO_LEVEL_KINDS else {})
    worker = {"throughput": "400/s", "uplink": rate, "downlink": rate, "buffer": LINK_BUFFER}
    trial = make_trial(
        {"workers": rank_count, "worker": worker},
        workload=_linear_workload(rank_count, vector_size.thousand_parameters),
        strategies={kind: {"kind": "all_reduce", "collective": collective}},
        dilation=AUTO,
    )
    check = check_host_capacity(trial.scenario, engine)
    (demand,) = check.demands  # one demand, since there is one strategy
    dilation = _choose_dilation(demand, vector_size.overhead_factor, rate)
    plan = make_trial_plan(trial, engine, dilation, check.calibrated_alpha_s)
    with run_trial(engine, plan) as folder:
        ratio = synchronous_step_s(folder, plan) / plan.predicted.step_s
        return CollectiveMeasurement(kind, rank_count, plan.predicted.step_s, (ratio,), read_verdict_reasons(folder))


def _choose_dilation(demand: TrialHostDemand, overhead_factor: float, rate: str) -> float:
    """Return the dilation of a trial: at least what this host needs, more if the cost of messages needs it.

    The larger dilation keeps the link rate in wall time between MIN_WALL_RATE_BPS and MAX_WALL_RATE_BPS.
    """
    wishes = {cause: overhead_factor * wish for cause, wish in demand.wishes.items()}
    wanted_dilation = demand.model_copy(update={"wishes": wishes}).min_time_dilation
    min_dilation, max_dilation = Rate(rate) / MAX_WALL_RATE_BPS, Rate(rate) / MIN_WALL_RATE_BPS
    return max(demand.min_time_dilation, min(max(wanted_dilation, min_dilation), max_dilation))


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


def _count_misranked_pairs(measurements: Sequence[CollectiveMeasurement]) -> int:
    """Return the number of pairs of collectives whose measured order differs from their predicted order.

    Only pairs with the same number of ranks count whose predictions differ by more than a tenth.
    """
    return sum(
        a.rank_count == b.rank_count
        and max(a.predicted_s, b.predicted_s) > MIN_RANKED_RATIO * min(a.predicted_s, b.predicted_s)
        and (a.predicted_s < b.predicted_s) != (a.measured_s < b.measured_s)
        for a, b in combinations(measurements, 2)
    )
