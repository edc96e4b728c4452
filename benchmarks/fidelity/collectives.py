"""The rows about collectives: does each take what its closed form says, and does the form rank them as they are?"""

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import combinations
from statistics import median
from typing import Any, NamedTuple, TypeAlias

from benchmarks.fidelity.idle_trial import plan_of, trial_of
from benchmarks.fidelity.row import Gate, Line
from benchmarks.fidelity.scenarios import FORM
from benchmarks.fidelity.training import Doubts, pace_s, trained
from compose.engines.containers.engine import DockerEngine
from compose.host.admission import TrialDemand
from compose.runs.run import decide_admission
from compose.shaping.htb_tree import DEFAULT_BUFFER_BYTES
from services.scenario.scenario import AUTO
from services.schema.errors import HostError
from services.schema.units import Rate

RANKS = (2, 4, 8)
KINDS = ("ring", "reduce_to_one", "tree", "double_tree", "recursive_doubling", "halving_doubling")
TWO_LEVELS = ("hierarchical", "hierarchical_copy")  # in pairs, from four ranks on
STEPS, OUTPUTS, APART = 4, 250, 1.10
# What ports hold anyway. Declared, so that what TCP loses in them degrades no trial; what it costs is in the ratio.
PORT = f"{DEFAULT_BUFFER_BYTES}B"
AGAIN = 2  # more trials of what is out of its gate
TRIES, REST_S = 3, 20.0  # of a trial that is not valid: who else uses a host may do so for a while


class Size(NamedTuple):
    """Of a vector, and how near a step with it has to be."""

    thousands: int  # of numbers
    off: float  # of the closed form
    closer: float  # how much dearer messages and updates are to admission, which lets them cost a tenth of a step


# A gate can't see what is closer than the host's own part, some hundredth of a step. Small vectors take a few messages,
# and fit at dilations at which a root's sockets hold its totals while it begins the next step: sooner than any form.
SIZES = {"1 MB": Size(250, 0.10, 16), "10 MB": Size(2500, 0.05, 8)}
# Links on the wall. On slower ones messages wait longer than TCP's timers, which nobody dilates. On faster ones the
# streams of a root's uplink share it unequally: its first total is there a tenth of a step before its last, and who has
# it pushes the next vector on an idle downlink.
SLOWEST_BPS, FASTEST_BPS = 15e6, 80e6


class Stepped(NamedTuple):
    """A collective among some ranks, and the pace of its steps over the closed form, of every trial."""

    kind: str
    ranks: int
    predicted_s: float  # virtual
    ratios: tuple[float, ...]
    doubts: str = ""  # why a verdict is not valid
    again: int = 0  # trials that failed, or whose verdict was not valid, and were measured again

    @property
    def ratio(self) -> float:
        """The median."""
        return median(self.ratios)

    @property
    def measured_s(self) -> float:
        """The step that it took."""
        return self.ratio * self.predicted_s

    def __str__(self) -> str:
        """As a row tells it."""
        of = [f"median of {', '.join(f'{each:.3f}' for each in self.ratios)}"] * (len(self.ratios) > 1)
        again = [f"{self.again} measured again"] * (self.again > 0)
        notes = "; ".join([*of, *again, *[f"not valid: {self.doubts}"] * bool(self.doubts)])
        return f"{self.kind} {self.ratio:.3f}" + (f" ({notes})" if notes else "")


JudgedRow: TypeAlias = Callable[[Doubts, DockerEngine, int], list[Line]]


def collectives_100mbit(doubts: Doubts, engine: DockerEngine, rounds: int) -> list[Line]:  # noqa: ARG001 - see `_rows`
    """All members of the family, 1 and 10 MB, on links of 100 Mbit/s."""
    return list(_rows(engine, "100mbit", doubts))


def collectives_1gbit(doubts: Doubts, engine: DockerEngine, rounds: int) -> list[Line]:  # noqa: ARG001
    """The same on links of 1 Gbit/s."""
    return list(_rows(engine, "1gbit", doubts))


def _rows(engine: DockerEngine, rate: str, doubts: Doubts) -> Iterator[Line]:
    """A sample is one member among so many ranks, and each has to be near."""
    for name, size in SIZES.items():
        cases = [(kind, ranks) for ranks in RANKS for kind in _kinds(ranks)]
        found = [_near(partial(_stepped, engine, kind, ranks, rate, size, doubts), size.off) for kind, ranks in cases]
        for ranks in RANKS:
            ratios = tuple(each.ratio for each in found if each.ranks == ranks)
            told = ", ".join(str(each) for each in found if each.ranks == ranks)
            what = f"{name} at {rate}, {ranks} workers: median step over {FORM}: {told}"
            yield Line(what=what, unit="ratio", declared=1.0, samples=ratios, gate=Gate(each_off=size.off))
        what = f"{name} at {rate}: pairs of collectives that the forms rank, a tenth apart, otherwise than containers"
        yield Line(what=what, unit="pairs", declared=0.0, samples=(float(_wrong(found)),), gate=Gate(at_most=0.0))
        what = f"{name} at {rate}: collectives with a trial whose verdict is not valid"
        doubted = float(sum(bool(each.doubts) for each in found))
        yield Line(what=what, unit="of " + str(len(found)), declared=0.0, samples=(doubted,), gate=Gate(at_most=0.0))


def _kinds(ranks: int) -> Sequence[str]:
    return (*KINDS, *(TWO_LEVELS if ranks > 2 else ()))  # noqa: PLR2004 - pairs


def _near(measure: Callable[[], Stepped], off: float) -> Stepped:
    """One trial, or three where the first is out: a disturbed host is so once, a slow collective always.

    Raises:
        HostError: every try of the same trial failed.
    """
    first = _tried(measure)
    found = [first] if abs(first.ratio - 1) <= off else [first, *(_tried(measure) for _ in range(AGAIN))]
    return first._replace(
        ratios=tuple(each.ratio for each in found),
        doubts="; ".join(dict.fromkeys(each.doubts for each in found if each.doubts)),
        again=sum(each.again for each in found),
    )


def _tried(measure: Callable[[], Stepped]) -> Stepped:
    """The first trial whose verdict is valid, or the last that succeeds; mostly it is others who have the host's cores.

    Raises:
        HostError: none succeeds.
    """
    doubtful: Stepped | None = None
    failure = HostError("not tried")
    for again in range(TRIES):
        if again:
            time.sleep(REST_S)
        try:
            found = measure()._replace(again=again)
        except HostError as error:
            failure, why = error, str(error)
        else:
            if not found.doubts:
                return found
            doubtful, why = found, found.doubts
        sys.stderr.write(f"try {again + 1} of {TRIES}: {why}\n")
    if doubtful is None:
        raise failure
    return doubtful._replace(again=TRIES - 1)


def _stepped(engine: DockerEngine, kind: str, ranks: int, rate: str, size: Size, doubts: Doubts) -> Stepped:
    """A few steps, as slow as admission decides where messages and updates are dearer than they are."""
    collective: dict[str, Any] = {"kind": kind} | ({"size": 2} if kind in TWO_LEVELS else {})
    trial = trial_of(
        {"workers": ranks, "worker": {"throughput": "400/s", "uplink": rate, "downlink": rate, "buffer": PORT}},
        workload=_workload(ranks, size.thousands),
        strategies={kind: {"kind": "all_reduce", "collective": collective}},
        dilation=AUTO,
    )
    admission = decide_admission(trial.scenario, engine)
    (demand,) = admission.demands  # of the one strategy
    plan = plan_of(trial, engine, _dilation(demand, size.closer, rate), admission.alpha_s)
    with trained(engine, plan) as folder:
        ratio = pace_s(folder, plan) / plan.predicted.step_s
        return Stepped(kind, ranks, plan.predicted.step_s, (ratio,), doubts(folder))


def _dilation(demand: TrialDemand, closer: float, rate: str) -> float:
    """What it asks for as always; for messages and updates more, as long as links are neither too slow nor too fast."""
    wishes = {what: closer * wish for what, wish in demand.wishes.items()}
    closest = demand.model_copy(update={"wishes": wishes}).required_dilation
    return max(demand.required_dilation, min(max(closest, Rate(rate) / FASTEST_BPS), Rate(rate) / SLOWEST_BPS))


def _workload(ranks: int, thousands: int) -> Mapping[str, Any]:
    """A linear model of so many thousand numbers, and data for a few steps of one sample per worker."""
    samples = STEPS * ranks * 5 // 4  # a fifth is kept for evaluation
    return {
        "dataset": {
            "kind": "synthetic_regression",
            "samples": samples,
            "features": thousands * 1000 // OUTPUTS,
            "outputs": OUTPUTS,
        },
        "model": {"kind": "linear"},
        "optimiser": {"kind": "sgd", "rate": 0.0001},
        "batch_per_worker": 1,
        "epochs": 1,
        "stop": "budget",
    }


def _wrong(found: Sequence[Stepped]) -> int:
    """Pairs among as many ranks whose predictions are a tenth apart and whose measurements stand the other way."""
    return sum(
        one.ranks == other.ranks
        and max(one.predicted_s, other.predicted_s) > APART * min(one.predicted_s, other.predicted_s)
        and (one.predicted_s < other.predicted_s) != (one.measured_s < other.measured_s)
        for one, other in combinations(found, 2)
    )
