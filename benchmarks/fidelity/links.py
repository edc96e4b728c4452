"""The rows about links: what is declared, and how is it measured? Variants take turns in every round."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from statistics import median

from benchmarks.fidelity.idle_trial import Lab, plan_of, trial_of
from benchmarks.fidelity.row import Gate, Line
from compose.engines.containers.engine import DockerEngine
from services.cluster.fluid_link import goodput_bytes_per_s
from services.schema.units import Rate

Row = Callable[[DockerEngine, int], list[Line]]  # engine, rounds -> lines
Samples = defaultdict[str, list[float]]

MBIT = 1e6 / 8  # bytes/s
HUB = "worker-0"
SHORT_BUFFER_BYTES, SHORT_BUFFER_BPS = 256 << 10, 200e6  # below this rate: a second of it drains a quarter of a second


def uplinks(engine: DockerEngine, rounds: int) -> list[Line]:
    """One long flow over one limited uplink."""
    return _rates(engine, rounds, "up")


def downlinks(engine: DockerEngine, rounds: int) -> list[Line]:
    """One long flow over one limited downlink."""
    return _rates(engine, rounds, "down")


def _rates(engine: DockerEngine, rounds: int, way: str) -> list[Line]:
    declared = ("10mbit", "100mbit", "1gbit", "2500mbit")
    groups = [_group(k, **{f"{way}link": rate}) for k, rate in enumerate(declared, 1)]
    samples: Samples = defaultdict(list)
    with _lab(engine, 1 + len(declared), groups=groups) as lab:
        for _ in range(rounds):
            for k, rate in enumerate(declared, 1):
                pair = (f"worker-{k}", HUB) if way == "up" else (HUB, f"worker-{k}")
                _, total, _ = lab.flows([pair], 0.7, 0.3, _buffer(rate))
                samples[rate].append(total / MBIT)
    return [_rate_line(f"one flow, {rate} {way}", rate, found) for rate, found in samples.items()]


def messages(engine: DockerEngine, rounds: int) -> list[Line]:
    """One message after a pause, on a stream that has carried others."""
    declared, sizes = ("100mbit", "1gbit"), (1 << 20, 4 << 20, 16 << 20)
    groups = [_group(k, uplink=rate, downlink=rate) for k, rate in enumerate(declared, 1)]
    samples: Samples = defaultdict(list)
    with _lab(engine, 1 + len(declared), groups=groups) as lab:
        for _ in range(rounds):
            for k, rate in enumerate(declared, 1):
                for size, seconds in zip(sizes, lab.message_s(f"worker-{k}", HUB, sizes, 0.2), strict=True):
                    samples[f"{size >> 20} MiB at {rate}"].append(1e3 * seconds)
    return [_message_line(what, found) for what, found in samples.items()]


def _message_line(what: str, found: list[float]) -> Line:
    size, _, _, rate = what.split()
    ideal_ms = 1e3 * (int(size) << 20) / goodput_bytes_per_s(Rate(rate))
    gate = Gate(median_off=0.10 if int(size) >= 16 else 0.05)  # noqa: PLR2004 - as promised
    return Line(what=f"one message, {what}", unit="ms", declared=ideal_ms, samples=tuple(found), gate=gate)


def incast(engine: DockerEngine, rounds: int) -> list[Line]:
    """Many senders to one receiver share its downlink."""
    samples: Samples = defaultdict(list)
    with _lab(engine, 9, worker={"uplink": "100mbit", "downlink": "100mbit"}) as lab:
        for _ in range(rounds):
            for count in (2, 4, 8):
                pairs = [(f"worker-{k}", HUB) for k in range(1, 1 + count)]
                _, total, _ = lab.flows(pairs, 1.5, 1.0, SHORT_BUFFER_BYTES)
                samples[f"{count} to 1"].append(total / MBIT)
    return [_total_line(f"incast {what}, total", "100mbit", found) for what, found in samples.items()]


def racks(engine: DockerEngine, rounds: int) -> list[Line]:
    """Four members of a rack share its uplink."""
    pairs = [(f"worker-{k}", f"worker-{4 + k}") for k in range(4)]
    network = {"kind": "racks", "size": 4, "uplink": "100mbit"}
    found = []
    with _lab(engine, 8, worker={"uplink": "100mbit", "downlink": "100mbit"}, network=network) as lab:
        for _ in range(rounds):
            _, total, _ = lab.flows(pairs, 1.5, 1.0, SHORT_BUFFER_BYTES)
            found.append(total / MBIT)
    return [_total_line("rack uplink shared by 4, total", "100mbit", found)]


def pairs(engine: DockerEngine, rounds: int) -> list[Line]:
    """A pair's limit holds inside a node's limit, and leaves the rest to others."""
    links = [{"nodes": ["worker-0", "worker-1"], "rate": "20mbit"}]
    samples: Samples = defaultdict(list)
    with _lab(engine, 3, worker={"uplink": "100mbit", "downlink": "100mbit"}, links=links) as lab:
        for _ in range(rounds):
            each, total, _ = lab.flows([(HUB, "worker-1"), (HUB, "worker-2")], 1.5, 1.0, SHORT_BUFFER_BYTES)
            samples["limited pair"].append(each[HUB, "worker-1"] / MBIT)
            samples["node"].append(total / MBIT)
    return [
        _total_line("pair limited inside a node: the pair", "20mbit", samples["limited pair"]),
        _total_line("pair limited inside a node: all of the node", "100mbit", samples["node"]),
    ]


def round_trips(engine: DockerEngine, rounds: int) -> list[Line]:
    """Round trips over paths with a delay each way."""
    declared = (1, 5, 50)  # ms, one way
    groups = [_group(k, delay=f"{ms}ms") for k, ms in enumerate(declared, 1)]
    samples: defaultdict[int, list[float]] = defaultdict(list)
    with _lab(engine, 1 + len(declared), groups=groups) as lab:
        for _ in range(rounds):
            for k, ms in enumerate(declared, 1):
                samples[ms].append(1e3 * median(lab.round_trips_s(HUB, f"worker-{k}", 15, 0.01)))
    return [
        Line(
            what=f"round trip, {ms} ms one way",
            unit="ms",
            declared=2 * ms,
            samples=tuple(found),
            gate=Gate(median_off=0.01) if ms == max(declared) else Gate(median_off_by=0.5),
        )
        for ms, found in samples.items()
    ]


def loss(engine: DockerEngine, rounds: int) -> list[Line]:
    """Lost packets are sent again by TCP, which counts them."""
    lossy = _group(1, uplink="100mbit", downlink="100mbit", loss={"kind": "independent", "share": 0.01})
    found = []
    with _lab(engine, 2, groups=[lossy]) as lab:
        for _ in range(rounds):
            _, _, (sent,) = lab.flows([("worker-1", HUB)], 5.0, 0.5)
            found.append(100 * sent["retransmitted"] / max(1, sent["segments"]))
    gate = Gate(median_off=0.10)
    return [Line(what="loss 1 %, segments sent again", unit="%", declared=1.0, samples=tuple(found), gate=gate)]


def _lab(engine: DockerEngine, workers: int, **cluster: object) -> Lab:
    return Lab(plan_of(trial_of({"workers": workers, **cluster}), engine), engine)


def _group(rank: int, **keys: object) -> Mapping[str, object]:
    return {"name": f"worker-{rank}", "ranks": [rank], **keys}


def _buffer(rate: str) -> int:
    return SHORT_BUFFER_BYTES if Rate(rate) < SHORT_BUFFER_BPS else 0


def _rate_line(what: str, rate: str, found: list[float]) -> Line:
    gate = Gate(median_off=0.03) if Rate(rate) > 1e9 else Gate(median_off=0.01, each_off=0.05)  # noqa: PLR2004
    return _goodput_line(what, rate, found, gate)


def _total_line(what: str, rate: str, found: list[float]) -> Line:
    return _goodput_line(what, rate, found, Gate(median_off=0.02))


def _goodput_line(what: str, rate: str, found: list[float], gate: Gate) -> Line:
    return Line(
        what=what, unit="Mbit/s", declared=goodput_bytes_per_s(Rate(rate)) / MBIT, samples=tuple(found), gate=gate
    )
