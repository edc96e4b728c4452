"""Short trials of the scenario `diloco-bandwidth` for one cell of the published table at one bandwidth."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from benchmarks.diloco_bandwidth.published import PERIOD_STEPS, WORKERS, StudyCell
from benchmarks.fidelity.idle_trial import make_trial_plan
from benchmarks.fidelity.training import SilentObserver, read_steps, read_verdict_reasons, run_trial
from compose.engines.base import TrialEngine
from compose.runs.run import check_host_capacity
from compose.scenario_files.load import find_scenario, load_scenario
from services.cluster.links.ethernet import FRAME_BYTES, PAYLOAD_BYTES
from services.scenario.scenario import AUTO, Scenario

SCENARIO = "diloco-bandwidth"
LAYER_WIDTH = 16  # inputs and outputs of every layer of the trained model: all layers are equal
BACKWARD_SHARE = 2 / 3  # of a step's compute; the exchanges of all methods may run beside the backward pass
HIDDEN_STEPS = 1  # further steps beside which an overlapped exchange may run (τ of the paper)
MERGE_WEIGHT = 0.5
BYTES_PER_PARAMETER = 4  # of the declared fp32 vector, before compression
BUCKET_SHARE_OF_LAYER = 0.9  # a bucket ends with the array with which it reaches this share of a layer: one per layer
PERIODS, MIN_STEPS = 2, 16  # of a trial
TRAIN_SHARE = 0.8  # of the samples of the dataset


class MeasuredUtilisation(NamedTuple):
    """Compute utilisation of a trial, over the steps in the middle of the trial."""

    share: float  # 1 - blocked time / step time, from 0 to 1
    mean_step_s: float  # in virtual seconds
    dilation: float
    verdict_reasons: str  # why the verdict of the trial is not valid; empty if it is


@dataclass(frozen=True)
class UtilisationTrials:
    """Trials on one engine, each of which measures the compute utilisation of a cell at one bandwidth.

    `size_divisor` divides the parameters of models and the bandwidths, so that exchanges take as long, and a real
    network has to carry fewer bytes.
    """

    engine: TrialEngine
    size_divisor: int = 1
    _measured: dict[tuple[str, float], MeasuredUtilisation] = field(default_factory=dict)

    def measure(self, cell: StudyCell, gbps: float) -> MeasuredUtilisation:
        """Run a trial of a cell at a bandwidth, unless it has run before, and return its compute utilisation.

        Raises:
            HostError: the trial failed.
            UserError: this host can't carry the trial.
        """
        key = cell.name, gbps
        if key not in self._measured:
            self._measured[key] = self._run(cell, gbps)
        return self._measured[key]

    def make_settings(self, cell: StudyCell, gbps: float) -> dict[str, Any]:
        """Return the values of a cell and a bandwidth that replace those of the scenario.

        The bandwidth is that of the payload, as in the paper. Links count whole frames.
        """
        model, batch = cell.model, self._scenario.training_workload.batch_per_worker or 1
        parameters = model.parameters // self.size_divisor
        frames_bps = 1e9 * gbps / self.size_divisor * FRAME_BYTES / PAYLOAD_BYTES
        return {
            "workload.dataset.samples": round(count_steps(cell) * batch * WORKERS / TRAIN_SHARE),
            "workload.model.hidden": [LAYER_WIDTH] * (model.layers - 1),
            "workload.payload": f"{parameters} x fp32",
            "cluster.worker.throughput": f"{batch / model.step_s:.9g}/s",
            "cluster.worker.uplink": f"{frames_bps:.0f}bit",
            "cluster.worker.downlink": f"{frames_bps:.0f}bit",
            "strategies": {cell.method: make_strategy(cell, parameters)},
            "sweep": {},
            "dilation": AUTO,
        }

    @cached_property
    def _scenario(self) -> Scenario:
        return load_scenario(find_scenario(SCENARIO))

    @cached_property
    def _prepared_engine(self) -> TrialEngine:
        self.engine.prepare(SilentObserver())
        return self.engine

    def _run(self, cell: StudyCell, gbps: float) -> MeasuredUtilisation:
        scenario = load_scenario(find_scenario(SCENARIO), self.make_settings(cell, gbps), self.engine.name)
        check = check_host_capacity(scenario, self.engine)
        (trial,) = scenario.trials()
        plan = make_trial_plan(trial, self.engine, check.dilation, check.calibrated_alpha_s)
        with run_trial(self._prepared_engine, plan) as folder:
            rows = [row for row in read_steps(folder, plan) if row["step"] in measured_steps(cell)]
            step_s, blocked_s = _sum(rows, "step_s"), _sum(rows, "exchange_s") + _sum(rows, "wait_s")
            return MeasuredUtilisation(
                1 - blocked_s / step_s, step_s / len(rows), plan.dilation, read_verdict_reasons(folder)
            )


def make_strategy(cell: StudyCell, parameters: int) -> dict[str, Any]:
    """Return the strategy of a cell as declared in a scenario, for a model with `parameters` parameters.

    Vectors are sent in bf16. The payload is declared in fp32, so that `bf16` sends half of it and `fp4` an eighth.
    """
    bf16 = {"kind": "bf16"}
    diloco = {"kind": "diloco", "period": PERIOD_STEPS, "overlap_steps": BACKWARD_SHARE, "compress": bf16}
    streaming = diloco | {"fragments": cell.model.fragments}
    match cell.method:
        case "data_parallel":
            bucket_bytes = BUCKET_SHARE_OF_LAYER * BYTES_PER_PARAMETER * parameters / cell.model.layers
            overlap = {"kind": "buckets", "bucket_size": f"{bucket_bytes:.0f}B"}
            return {"kind": "all_reduce", "compress": bf16, "overlap": overlap}
        case "diloco":
            return diloco
        case "streaming":
            return streaming
        case _:
            overlap_steps = HIDDEN_STEPS + BACKWARD_SHARE
            return streaming | {
                "overlap_steps": overlap_steps,
                "merge_weight": MERGE_WEIGHT,
                "compress": {"kind": "fp4"},
            }


def count_steps(cell: StudyCell) -> int:
    """Return the number of steps of a trial."""
    return MIN_STEPS if cell.method == "data_parallel" else PERIODS * PERIOD_STEPS


def measured_steps(cell: StudyCell) -> range:
    """Return the steps over which the utilisation of a trial is measured: the middle half.

    For all variants of DiLoCo, these are as many steps as a period, so they contain every fragment once. The exchange
    after the last step of a trial, beside which nothing is computed, is not among them.
    """
    steps = count_steps(cell)
    return range(steps // 4, steps * 3 // 4)


def _sum(rows: Iterable[dict[str, Any]], column: str) -> float:
    return sum(float(row[column]) for row in rows)
