"""Cells of the kill matrix: strategy and policy of a trial, and which node is killed in which phase.

All trials have the same cluster, model and number of steps. Each phase takes about 0.3 s of wall time or more, so that
a node can be killed in it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal, TypeAlias, get_args

from services.scenario.recovery import FailurePolicy

Role: TypeAlias = Literal["worker", "server", "coordinator"]
Phase: TypeAlias = Literal["gate", "compute", "exchange", "evaluation", "switch", "checkpoint", "teardown"]
Document: TypeAlias = Mapping[str, Any]

ROLES: tuple[Role, ...] = get_args(Role)
PHASES: tuple[Phase, ...] = get_args(Phase)
WORKERS, STEPS, BATCH = 3, 6, 48
KILL_STEP = 3  # step, from 0, with the compute and the exchange in which nodes are killed
SWITCH_STEP = 5
PERIOD = 2  # steps from one exchange of local SGD, and from one checkpoint, to the next
STEPS_BETWEEN_EVALUATIONS = 4
TEST_SAMPLES = 20_000  # an evaluation takes longer than the detection of its begin and the kill
DILATION = 4  # containers that share two cores start slowly; a phase must not be over before the kill
HEARTBEAT_TIMEOUT_S, RESTART_DELAY_S = 2.0, 1.0  # the defaults
RING: Document = {"kind": "all_reduce", "collective": {"kind": "ring"}}
SERVER: Document = {"kind": "parameter_server"}
ASP: Document = {**SERVER, "synchrony": {"kind": "asp"}}


@dataclass(frozen=True)
class MatrixStrategy:
    """A strategy of the matrix, and the strongest policy for lost nodes that it allows."""

    name: str
    document: Document
    strongest_policy: FailurePolicy
    roles: tuple[Role, ...] = ("worker", "coordinator")

    @property
    def policies(self) -> tuple[FailurePolicy, ...]:
        """Policies of its cells."""
        return tuple(dict.fromkeys(("abort", self.strongest_policy)))

    @property
    def phases(self) -> tuple[Phase, ...]:
        """Phases of its trials."""
        missing = {"switch"} if self.document["kind"] != "strategy_switch" else set()
        if self.strongest_policy != "restore":
            missing.add("checkpoint")
        return tuple(phase for phase in PHASES if phase not in missing)


STRATEGIES = (
    MatrixStrategy("ring", RING, "restore"),
    MatrixStrategy("ps_bsp", SERVER, "restore", ROLES),
    MatrixStrategy("ps_asp", ASP, "continue", ROLES),
    MatrixStrategy("ps_ssp", {**SERVER, "synchrony": {"kind": "ssp", "staleness": 2}}, "continue", ROLES),
    MatrixStrategy("local_sgd", {"kind": "local_sgd", "period": PERIOD}, "restore"),
    MatrixStrategy(
        "residuals",
        {**RING, "compress": {"kind": "error_feedback", "inner": {"kind": "top_k", "ratio": 0.25}}},
        "restore",
    ),
    MatrixStrategy(
        "switch",
        {"kind": "strategy_switch", "before": RING, "after": ASP, "when": {"kind": "at", "step": SWITCH_STEP}},
        "continue",
        ROLES,
    ),
)


@dataclass(frozen=True)
class MatrixCell:
    """One cell: a trial in which one node is killed in one phase."""

    strategy: MatrixStrategy
    policy: FailurePolicy
    role: Role
    phase: Phase

    @property
    def name(self) -> str:
        """Name of the cell, such as `ring:restore:worker:compute`."""
        return f"{self.strategy.name}:{self.policy}:{self.role}:{self.phase}"

    @property
    def node_name(self) -> str:
        """Node that is killed; in an evaluation the worker whose parameters are evaluated."""
        if self.role == "coordinator":
            return self.role
        if self.role == "server":
            return "server-0"
        return "worker-0" if self.phase == "evaluation" else "worker-1"

    @property
    def must_go_on(self) -> bool:
        """Whether the trial must go on without the node, or with it after its restart; otherwise it must fail.

        A policy holds from the start of training on.
        """
        if self.phase == "gate" or self.role == "coordinator":
            return False
        return self.policy == "restore" or (self.policy == "continue" and self.role == "worker")

    @property
    def is_synchronous(self) -> bool:
        """Whether the workers train in common steps to the end, so that the samples equal the budget exactly."""
        return self.strategy.name not in ("ps_asp", "ps_ssp", "switch")

    def make_document(self) -> dict[str, Any]:
        """Return the scenario of the trial.

        An event that sets a link to its declared rate marks the begin of the step in which nodes are killed: the
        coordinator logs when it is due.
        """
        link = {"uplink": "240mbit", "downlink": "240mbit"}
        recovery: dict[str, Any] = {
            "on_failure": self.policy,
            "heartbeat_timeout": f"{HEARTBEAT_TIMEOUT_S:g}s",
            "restart_delay": f"{RESTART_DELAY_S:g}s",
        }
        if self.policy == "restore" or self.phase == "checkpoint":
            recovery["checkpoint"] = {"steps": PERIOD}
        samples = STEPS * BATCH + TEST_SAMPLES
        return {
            "name": "faults",
            "workload": {
                "dataset": {
                    "kind": "synthetic_regression",
                    "samples": samples,
                    "features": 400,
                    "outputs": 100,
                    "test_fraction": TEST_SAMPLES / samples,
                },
                "model": {"kind": "mlp", "hidden": [800]},  # 401,000 parameters
                "optimiser": {"kind": "momentum", "rate": 0.01},
                "batch": BATCH,
                "epochs": 1,
                "evaluate_every": STEPS_BETWEEN_EVALUATIONS * BATCH,
            },
            "cluster": {
                "workers": WORKERS,
                "worker": {"throughput": "200/s", **link},
                "server": {"uplink": "720mbit", "downlink": "720mbit"},
            },
            "strategies": {self.strategy.name: dict(self.strategy.document)},
            "events": [{"kind": "link", "of": ["worker-2"], "uplink": link["uplink"], "at": {"step": KILL_STEP}}],
            "recovery": recovery,
            "timeouts": {"start": "60s", "step": "60s", "run": "90s"},
            "dilation": DILATION,
            "baseline": False,
        }


def list_cells() -> Iterator[MatrixCell]:
    """Yield all cells, in the order of the table."""
    for strategy in STRATEGIES:
        for policy, role, phase in product(strategy.policies, strategy.roles, strategy.phases):
            yield MatrixCell(strategy, policy, role, phase)


CELLS: Mapping[str, MatrixCell] = {cell.name: cell for cell in list_cells()}
