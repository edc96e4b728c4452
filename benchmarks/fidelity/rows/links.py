"""Fidelity rows about links: measured rates, message times, round trips and losses against the declared values.

The variants of a row take turns in every round.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from statistics import median

from benchmarks.fidelity.idle_trial import IdleTrial, make_trial, make_trial_plan
from benchmarks.fidelity.row import FidelityGate, FidelityMeasurement
from compose.engines.containers.engine import DockerEngine
from services.cluster.links.fluid_link import to_goodput_bytes_per_s
from services.schema.units import Rate

RowFunction = Callable[[DockerEngine, int], list[FidelityMeasurement]]  # engine, rounds -> measurements
SamplesByLabel = defaultdict[str, list[float]]

BYTES_PER_MBIT = 1e6 / 8  # bytes/s
HUB_NODE = "worker-0"
# Receive buffer below this link rate, so that a full buffer does not take long to drain.
SHORT_BUFFER_BYTES, MAX_SHORT_BUFFER_BPS = 256 << 10, 200e6


def measure_uplinks(engine: DockerEngine, rounds: int) -> list[FidelityMeasurement]:
    """Measure the rate of one long flow over one limited uplink."""
    return _measure_single_flows(engine, rounds, "up")


def measure_downlinks(engine: DockerEngine, rounds: int) -> list[FidelityMeasurement]:
    """Measure the rate of one long flow over one limited downlink."""
    return _measure_single_flows(engine, rounds, "down")


def _measure_single_flows(engine: DockerEngine, rounds: int, direction: str) -> list[FidelityMeasurement]:
    declared = ("10mbit", "100mbit", "1gbit", "2500mbit")
    groups = [_worker_group(k, **{f"{direction}link": rate}) for k, rate in enumerate(declared, 1)]
    samples: SamplesByLabel = defaultdict(list)
    with _idle_trial(engine, 1 + len(declared), groups=groups) as idle_trial:
        for _ in range(rounds):
            for k, rate in enumerate(declared, 1):
                pair = (f"worker-{k}", HUB_NODE) if direction == "up" else (HUB_NODE, f"worker-{k}")
                _, total, _ = idle_trial.measure_flows([pair], 0.7, 0.3, _receive_buffer_bytes(rate))
                samples[rate].append(total / BYTES_PER_MBIT)
    return [_single_flow_measurement(f"one flow, {rate} {direction}", rate, rates) for rate, rates in samples.items()]


def measure_messages(engine: DockerEngine, rounds: int) -> list[FidelityMeasurement]:
    """Measure the time of one message after a pause, on a stream that has carried messages before."""
    declared, sizes = ("100mbit", "1gbit"), (1 << 20, 4 << 20, 16 << 20)
    groups = [_worker_group(k, uplink=rate, downlink=rate) for k, rate in enumerate(declared, 1)]
    samples: SamplesByLabel = defaultdict(list)
    with _idle_trial(engine, 1 + len(declared), groups=groups) as idle_trial:
        for _ in range(rounds):
            for k, rate in enumerate(declared, 1):
                for size, seconds in zip(
                    sizes, idle_trial.measure_messages_s(f"worker-{k}", HUB_NODE, sizes, 0.2), strict=True
                ):
                    samples[f"{size >> 20} MiB at {rate}"].append(1e3 * seconds)
    return [_message_measurement(label, times_ms) for label, times_ms in samples.items()]


def _message_measurement(label: str, times_ms: list[float]) -> FidelityMeasurement:
    size, _, _, rate = label.split()
    ideal_ms = 1e3 * (int(size) << 20) / to_goodput_bytes_per_s(Rate(rate))
    gate = FidelityGate(median_off=0.10 if int(size) >= 16 else 0.05)  # noqa: PLR2004 - large messages have a wider gate
    return FidelityMeasurement(
        what=f"one message, {label}", unit="ms", declared=ideal_ms, samples=tuple(times_ms), gate=gate
    )


def measure_incast(engine: DockerEngine, rounds: int) -> list[FidelityMeasurement]:
    """Measure the total rate of many senders that share the downlink of one receiver."""
    samples: SamplesByLabel = defaultdict(list)
    with _idle_trial(engine, 9, worker={"uplink": "100mbit", "downlink": "100mbit"}) as idle_trial:
        for _ in range(rounds):
            for count in (2, 4, 8):
                pairs = [(f"worker-{k}", HUB_NODE) for k in range(1, 1 + count)]
                _, total, _ = idle_trial.measure_flows(pairs, 1.5, 1.0, SHORT_BUFFER_BYTES)
                samples[f"{count} to 1"].append(total / BYTES_PER_MBIT)
    return [_total_rate_measurement(f"incast {label}, total", "100mbit", rates) for label, rates in samples.items()]


def measure_rack_uplink(engine: DockerEngine, rounds: int) -> list[FidelityMeasurement]:
    """Measure the total rate of four nodes that share the uplink of their rack."""
    pairs = [(f"worker-{k}", f"worker-{4 + k}") for k in range(4)]
    network = {"kind": "racks", "size": 4, "uplink": "100mbit"}
    rates_mbit = []
    with _idle_trial(engine, 8, worker={"uplink": "100mbit", "downlink": "100mbit"}, network=network) as idle_trial:
        for _ in range(rounds):
            _, total, _ = idle_trial.measure_flows(pairs, 1.5, 1.0, SHORT_BUFFER_BYTES)
            rates_mbit.append(total / BYTES_PER_MBIT)
    return [_total_rate_measurement("rack uplink shared by 4, total", "100mbit", rates_mbit)]


def measure_pair_limit(engine: DockerEngine, rounds: int) -> list[FidelityMeasurement]:
    """Measure a pair of nodes with a rate limit inside the limit of a node, which may use the remaining rate."""
    links = [{"nodes": ["worker-0", "worker-1"], "rate": "20mbit"}]
    samples: SamplesByLabel = defaultdict(list)
    with _idle_trial(engine, 3, worker={"uplink": "100mbit", "downlink": "100mbit"}, links=links) as idle_trial:
        for _ in range(rounds):
            pairs = [(HUB_NODE, "worker-1"), (HUB_NODE, "worker-2")]
            rates, total, _ = idle_trial.measure_flows(pairs, 1.5, 1.0, SHORT_BUFFER_BYTES)
            samples["limited pair"].append(rates[HUB_NODE, "worker-1"] / BYTES_PER_MBIT)
            samples["node"].append(total / BYTES_PER_MBIT)
    return [
        _total_rate_measurement("pair limited inside a node: the pair", "20mbit", samples["limited pair"]),
        _total_rate_measurement("pair limited inside a node: all of the node", "100mbit", samples["node"]),
    ]


def measure_round_trips(engine: DockerEngine, rounds: int) -> list[FidelityMeasurement]:
    """Measure round trips over paths with a delay in each direction."""
    declared = (1, 5, 50)  # ms, one way
    groups = [_worker_group(k, delay=f"{ms}ms") for k, ms in enumerate(declared, 1)]
    samples: defaultdict[int, list[float]] = defaultdict(list)
    with _idle_trial(engine, 1 + len(declared), groups=groups) as idle_trial:
        for _ in range(rounds):
            for k, ms in enumerate(declared, 1):
                samples[ms].append(1e3 * median(idle_trial.measure_round_trips_s(HUB_NODE, f"worker-{k}", 15, 0.01)))
    return [
        FidelityMeasurement(
            what=f"round trip, {ms} ms one way",
            unit="ms",
            declared=2 * ms,
            samples=tuple(times_ms),
            gate=FidelityGate(median_off=0.01) if ms == max(declared) else FidelityGate(median_off_by=0.5),
        )
        for ms, times_ms in samples.items()
    ]


def measure_packet_loss(engine: DockerEngine, rounds: int) -> list[FidelityMeasurement]:
    """Measure packet loss by the share of segments that TCP counts as retransmitted."""
    lossy = _worker_group(1, uplink="100mbit", downlink="100mbit", loss={"kind": "independent", "share": 0.01})
    retransmitted_percent = []
    with _idle_trial(engine, 2, groups=[lossy]) as idle_trial:
        for _ in range(rounds):
            _, _, (sent,) = idle_trial.measure_flows([("worker-1", HUB_NODE)], 5.0, 0.5)
            retransmitted_percent.append(100 * sent["retransmitted"] / max(1, sent["segments"]))
    return [
        FidelityMeasurement(
            what="loss 1 %, retransmitted segments",
            unit="%",
            declared=1.0,
            samples=tuple(retransmitted_percent),
            gate=FidelityGate(median_off=0.10),
        )
    ]


def _idle_trial(engine: DockerEngine, worker_count: int, **cluster_keys: object) -> IdleTrial:
    return IdleTrial(make_trial_plan(make_trial({"workers": worker_count, **cluster_keys}), engine), engine)


def _worker_group(rank: int, **worker_keys: object) -> Mapping[str, object]:
    return {"name": f"worker-{rank}", "ranks": [rank], **worker_keys}


def _receive_buffer_bytes(rate: str) -> int:
    return SHORT_BUFFER_BYTES if Rate(rate) < MAX_SHORT_BUFFER_BPS else 0


def _single_flow_measurement(description: str, rate: str, rates_mbit: list[float]) -> FidelityMeasurement:
    gate = FidelityGate(median_off=0.03) if Rate(rate) > 1e9 else FidelityGate(median_off=0.01, each_off=0.05)  # noqa: PLR2004
    return _goodput_measurement(description, rate, rates_mbit, gate)


def _total_rate_measurement(description: str, rate: str, rates_mbit: list[float]) -> FidelityMeasurement:
    return _goodput_measurement(description, rate, rates_mbit, FidelityGate(median_off=0.02))


def _goodput_measurement(
    description: str, rate: str, rates_mbit: list[float], gate: FidelityGate
) -> FidelityMeasurement:
    declared_mbit = to_goodput_bytes_per_s(Rate(rate)) / BYTES_PER_MBIT
    samples = tuple(rates_mbit)
    return FidelityMeasurement(what=description, unit="Mbit/s", declared=declared_mbit, samples=samples, gate=gate)
