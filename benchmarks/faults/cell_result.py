"""Result of one cell: what was measured, and in which respects it differs from the policy of the trial."""

from collections.abc import Iterator

from benchmarks.faults.cells import BATCH, STEPS, MatrixCell
from benchmarks.fidelity.provenance import MeasurementOrigin
from services.schema.component import FrozenRecord

LIMIT_S = 10.0  # virtual seconds from the detection of a loss to the end of the recovery or of the trial
SAMPLE_BUDGET = STEPS * BATCH


class CellResult(FrozenRecord):
    """What was measured in the trial of one cell. Seconds are virtual."""

    cell: str
    origin: MeasurementOrigin
    status: str  # of the trial
    reason: str = ""  # why the trial failed
    disturbance: str = ""  # of the trial by this host, according to the engine
    is_hanging: bool = False  # whether the trial was ended after the wall limit of a cell
    was_killed_in_phase: bool = False
    tries: int = 1  # trials, of which the last one counts; earlier ones missed the phase
    kill_offset_s: float | None = None  # from the begin of the phase to the kill
    detection_s: float | None = None  # from the kill to the detection
    end_s: float | None = None  # from the detection to the end of the recovery, or of the failed trial
    samples: int | None = None  # that the coordinator has counted; None if the trial failed
    wall_s: float = 0.0  # of all tries
    host_load: float = 0.0  # processes of this host that ran or waited, mean of the last minute of the trial


def find_defects(cell: MatrixCell, result: CellResult) -> Iterator[str]:
    """Yield the respects in which a cell did not end by its policy, within the limit."""
    if result.is_hanging:
        yield "the trial did not end"
        return
    if not result.was_killed_in_phase:
        yield f"{cell.node_name} was not killed in this phase"
    yield from _find_recovery_defects(result, cell) if cell.must_go_on else _find_failure_defects(result, cell)
    if result.end_s is None:
        yield "no end of the recovery was found"
    elif result.end_s > LIMIT_S:
        yield f"{result.end_s:.1f} s from the detection on, more than {LIMIT_S:g} s"


def _find_failure_defects(result: CellResult, cell: MatrixCell) -> Iterator[str]:
    """Yield the respects in which a trial did not fail with a reason that names the lost node."""
    if result.status != "failed":
        yield f"the trial ended with {result.status}, although {cell.node_name} was lost"
    elif not result.reason.startswith(f"{cell.node_name} ended with exit code "):
        yield f"the reason does not name {cell.node_name}: {result.reason}"
    if result.disturbance:
        yield f"the trial counts as disturbed by the host: {result.disturbance}"


def _find_recovery_defects(result: CellResult, cell: MatrixCell) -> Iterator[str]:
    """Yield the respects in which a trial did not go on as its policy requires."""
    if result.status != "success":
        yield f"the trial failed: {result.reason}"
        return
    excess = None if result.samples is None else result.samples - SAMPLE_BUDGET
    if excess is None or not 0 <= excess <= (0 if cell.is_synchronous else BATCH):
        yield f"{result.samples} samples were counted of a budget of {SAMPLE_BUDGET}"
