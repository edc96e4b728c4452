"""Random scenarios with one trial each, for tests of the predicted times in virtual time."""

from collections.abc import Iterator
from random import Random
from typing import Any, TypeAlias

from pydantic import ValidationError

from services.scenario.scenario import Scenario, TrialSpec

Document: TypeAlias = dict[str, Any]

COLLECTIVES = (
    *({"kind": kind} for kind in ("ring", "double_tree", "halving_doubling", "recursive_doubling", "tree")),
    {"kind": "reduce_to_one"},
    *({"kind": kind, "size": size} for kind in ("hierarchical", "hierarchical_copy") for size in (2, 3)),
)
ALL_GATHER_ALGORITHMS = tuple({"kind": kind} for kind in ("ring", "tree", "direct"))
SPARSE = tuple({"kind": "top_k", "ratio": ratio} for ratio in (0.05, 0.5))
ROUNDS = ({"kind": "bsp"}, {"kind": "backup", "backups": 1}, {"kind": "elastic"}, {"kind": "greedy"})
NO_ROUNDS = ({"kind": "asp"}, {"kind": "ssp", "staleness": 2}, {"kind": "dssp", "low": 1, "high": 4}, {"kind": "gba"})
STRATEGY_KINDS = (
    "none",
    "all_reduce",
    "gathering_all_reduce",
    "local_sgd",
    "diloco",
    "d_psgd",
    "noloco",
    "post_local_sgd",
    "parameter_server",
    "asynchronous_server",
    "easgd",
    "partial_all_reduce",
    "ad_psgd",
    "strategy_switch",
    "sync_switch",
)


def random_trials(kind: str, seed: int, *, has_other_keys: bool = False) -> Iterator[TrialSpec]:
    """Yield valid trials of one kind of strategy with random settings, without end.

    Settings that a scenario may not combine are drawn again. With `has_other_keys`, they also have number formats,
    micro-batches, uneven data, events, and targets that end the training early.
    """
    rng = Random(f"{kind} {seed}")
    while True:
        document = _random_document(kind, rng)
        if has_other_keys:
            _add_other_keys(document, rng)
        try:
            yield from Scenario.decode(document).trials()
        except (ValueError, ValidationError):
            continue


def _random_document(kind: str, rng: Random) -> Document:
    workers = 1 if kind == "none" else rng.randint(1, 8)
    batch = rng.randint(max(4, workers), 64)
    return {
        "name": "random",
        "workload": {
            "dataset": {
                "kind": "synthetic_regression",
                "samples": rng.randint(4 * batch, 20 * batch),
                "features": rng.choice([16, 64, 256]),
                "outputs": rng.choice([4, 32, 128]),
                "hidden": 4,
            },
            "model": {"kind": "linear"},
            "optimiser": {"kind": "sgd", "rate": 0.001},
            "batch": batch,
            "epochs": rng.randint(2, 6),
        },
        "cluster": _random_cluster(workers, rng),
        "strategies": {"it": _random_strategy(kind, rng)},
        "baseline": False,
        "seed": rng.randint(1, 1000),
    }


def _add_other_keys(document: Document, rng: Random) -> None:
    """Add keys that change what is computed, the size of messages, the network, or the end of the training."""
    workload, workers = document["workload"], document["cluster"]["workers"]
    document["cluster"]["worker"].pop("loss", None)  # virtual time loses no packets, so that the verdict is invalid
    workload |= {"precision": rng.choice(["fp32", "fp64"]), "micro_batches": rng.choice([1, 2])}
    if rng.random() < 0.3:
        workload["partition"] = {"kind": "sizes", "shares": [rng.randint(2, 5) for _ in range(workers)]}
    if rng.random() < 0.3:
        workload |= {"target": {"metric": "mse", "at_most": 1e9}, "evaluate_every": rng.choice([64, 100, 300])}
    if rng.random() < 0.5:
        document["events"] = [_random_event(workers, rng)]


def _random_event(workers: int, rng: Random) -> Document:
    when = {"at": {"time": rng.choice(["10ms", "200ms"])}, "lasts": "100ms"}
    change: Document = rng.choice(
        [{"kind": "slowdown", "factor": 3}, {"kind": "link", "delay": "5ms"}, {"kind": "pause"}]
    )
    return {**change, "of": [f"worker-{rng.randrange(workers)}"], **when}


def _random_cluster(workers: int, rng: Random) -> Document:
    worker = {"throughput": f"{rng.choice([200, 1000, 5000])}/s", **_random_link(rng)}
    if rng.random() < 0.3:
        worker["variation"] = _random_variation(rng)
    if "delay" in worker and rng.random() < 0.2:
        worker["jitter"] = {"kind": "normal", "deviation": "0.5ms"}
    if rng.random() < 0.05:
        worker["loss"] = {"kind": "independent", "share": 0.01}
    cluster: Document = {"workers": workers, "worker": worker, "server": _random_link(rng)}
    if workers > 1 and rng.random() < 0.4:
        other = {"speed": rng.choice([0.25, 0.5, 0.8])} if rng.random() < 0.6 else _random_link(rng)
        cluster["groups"] = [
            {"name": "other", "ranks": rng.sample(range(workers), rng.randint(1, workers // 2)), **other}
        ]
    if workers > 2 and rng.random() < 0.2:
        cluster["network"] = {"kind": "racks", "size": 2, "uplink": rng.choice(["50mbit", "200mbit"])}
    return cluster


def _random_variation(rng: Random) -> Document:
    if rng.random() < 0.6:
        return {"kind": "lognormal", "sigma": rng.choice([0.05, 0.2, 0.5])}
    return {"kind": "on_off", "slowdown": rng.choice([1.5, 3.0]), "slow_steps": 3, "fast_steps": rng.choice([5, 17])}


def _random_link(rng: Random) -> Document:
    if rng.random() < 0.15:
        return {}
    rate = rng.choice(["20mbit", "100mbit", "1gbit"])
    delay = {"delay": rng.choice(["0.2ms", "2ms", "10ms"])} if rng.random() < 0.4 else {}
    return {"uplink": rate, "downlink": rate if rng.random() < 0.7 else "200mbit", **delay}


def _random_strategy(kind: str, rng: Random) -> Document:  # noqa: C901, PLR0911, PLR0912 - one case per kind
    compress = {"compress": {"kind": "fp16"}} if rng.random() < 0.2 else {}
    collective = {"collective": rng.choice(COLLECTIVES)}
    servers: Document = {"servers": rng.randint(1, 3)}
    if rng.random() < 0.3:
        servers = {"placement": {"kind": "colocated"}}
    match kind:
        case "none":
            return {"kind": "none"}
        case "all_reduce":
            return {"kind": kind, **collective, **compress}
        case "gathering_all_reduce":
            return {"kind": "all_reduce", "gather": rng.choice(ALL_GATHER_ALGORITHMS), "compress": rng.choice(SPARSE)}
        case "local_sgd":
            return {"kind": kind, "period": rng.randint(1, 6), **collective, **compress}
        case "diloco":
            fragments, between = rng.randint(1, 3), rng.randint(1, 4)
            period, overlap = fragments * between, rng.randint(0, between)
            parts = {"period": period, "fragments": fragments, "overlap_steps": overlap}
            return {"kind": kind, **parts, **collective, **compress}
        case "d_psgd":
            topology = {"kind": rng.choice(["ring", "exponential", "complete"])}
            return {"kind": kind, "topology": topology, "order": rng.choice(["mix_first", "update_first"])}
        case "noloco":
            return {"kind": kind, "period": rng.randint(1, 4)}
        case "post_local_sgd":
            return {"kind": kind, "period": rng.randint(1, 6), **collective, **compress}
        case "parameter_server":
            return {"kind": kind, "synchrony": rng.choice(ROUNDS), **servers, **compress}
        case "asynchronous_server":
            return {"kind": "parameter_server", "synchrony": rng.choice(NO_ROUNDS), **servers, **compress}
        case "easgd":
            return {
                "kind": kind,
                "period": rng.randint(1, 6),
                "synchrony": rng.choice([ROUNDS[0], NO_ROUNDS[0]]),
                **servers,
            }
        case "partial_all_reduce":
            return {"kind": kind, "group_size": rng.choice([2, 2, 3, 4, 5, 6, 7, 8])}
        case "ad_psgd":
            return {"kind": kind}
        case "strategy_switch":
            server = {"kind": "parameter_server", "synchrony": rng.choice([ROUNDS[0], NO_ROUNDS[0]]), **servers}
            return {
                "kind": kind,
                "before": {"kind": "all_reduce", **collective},
                "after": server,
                "when": {"kind": "at", "fraction": rng.choice([0.25, 0.5])},
            }
        case _:
            stragglers = rng.choice(["keep", "elastic", "greedy"])
            return {"kind": kind, "servers": rng.randint(1, 2), "fraction": 0.5, "stragglers": stragglers, **compress}
