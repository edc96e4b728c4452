"""Scenarios of the benchmark: clusters, messages and quality guards that were not used to build strategy `auto`."""

from dataclasses import dataclass, field
from typing import Any

STEPS_BY_GUARD = {"exact": 24, "rounded": 24, "lossy": 48}  # steps of a trial: with local steps, at least three periods
TRAIN_SHARE = 0.8  # of the samples of the dataset
MAX_PERIOD = 16


@dataclass(frozen=True)
class AutoCase:
    """One scenario: a cluster, a model with its messages, and a quality guard."""

    name: str
    guard: str
    workers: int
    worker: dict[str, Any]  # speed and link of a worker
    hidden: tuple[int, ...]  # layers of the model
    batch_per_worker: int = 8
    servers: int = 0
    server: dict[str, Any] = field(default_factory=dict)  # link of a server
    cluster: dict[str, Any] = field(default_factory=dict)  # other keys of the cluster
    seed: int = 1

    def make_document(self, strategies: dict[str, Any]) -> dict[str, Any]:
        """Return the scenario with the given strategies."""
        batch = self.batch_per_worker * self.workers
        workload = {
            "dataset": {
                "kind": "synthetic_regression",
                "samples": round(STEPS_BY_GUARD[self.guard] * batch / TRAIN_SHARE),
                "features": 16,
                "outputs": 4,
            },
            "model": {"kind": "mlp", "hidden": list(self.hidden)},
            "optimiser": {"kind": "sgd", "rate": 0.01},
            "batch": batch,
            "epochs": 1,
        }
        return {
            "name": "auto",
            "workload": workload,
            "cluster": {"workers": self.workers, "worker": self.worker, "server": self.server} | self.cluster,
            "strategies": strategies,
            "baseline": False,
            "seed": self.seed,
            "engine": "simulated",
        }

    @property
    def auto_strategy(self) -> dict[str, Any]:
        """Declaration of strategy `auto`, with the defaults except for guard, servers and longest period."""
        return {"kind": "auto", "quality": self.guard, "servers": self.servers, "max_period": MAX_PERIOD}


def link(rate: str, delay: str, **other: Any) -> dict[str, Any]:
    """Return the keys of a link with the same rate in both directions."""
    return {"uplink": rate, "downlink": rate, "delay": delay, **other}


CASES: tuple[AutoCase, ...] = (
    AutoCase("lab-exact", "exact", 4, {"throughput": "400/s", **link("20mbit", "100us")}, (48, 48, 48), seed=11),
    AutoCase("lab-lossy", "lossy", 4, {"throughput": "400/s", **link("20mbit", "100us")}, (48, 48, 48), seed=12),
    AutoCase("slow-rounded", "rounded", 6, {"throughput": "90/s", **link("50mbit", "2ms")}, (96, 64), seed=13),
    AutoCase("slow-lossy", "lossy", 6, {"throughput": "900/s", **link("50mbit", "2ms")}, (96, 64), seed=14),
    AutoCase("fast-exact", "exact", 12, {"throughput": "300/s", **link("100mbit", "20us")}, (64, 64), seed=15),
    AutoCase("fast-rounded", "rounded", 10, {"throughput": "60/s", **link("10mbit", "30us")}, (64,) * 6, seed=16),
    AutoCase("tiny-vector", "exact", 12, {"throughput": "4000/s", **link("10gbit", "500us")}, (16,), seed=17),
    AutoCase("wan-exact", "exact", 5, {"throughput": "30/s", **link("80mbit", "25ms")}, (160, 80), seed=18),
    AutoCase("wan-lossy", "lossy", 5, {"throughput": "300/s", **link("80mbit", "25ms")}, (160, 80), seed=19),
    AutoCase(
        "racks-exact",
        "exact",
        12,
        {"throughput": "200/s", **link("10mbit", "50us")},
        (64, 64),
        cluster={"network": {"kind": "racks", "size": 4, "uplink": "5mbit"}},
        seed=20,
    ),
    AutoCase(
        "racks-rounded",
        "rounded",
        8,
        {"throughput": "20/s", **link("2mbit", "50us")},
        (64,) * 4,
        cluster={"network": {"kind": "racks", "size": 4, "uplink": "1mbit"}},
        seed=21,
    ),
    AutoCase(
        "servers-exact",
        "exact",
        8,
        {"throughput": "150/s", **link("500mbit", "300us")},
        (96, 96),
        servers=4,
        server=link("2gbit", "300us"),
        seed=22,
    ),
    AutoCase(
        "servers-rounded",
        "rounded",
        3,
        {"throughput": "150/s", **link("100mbit", "5ms")},
        (96, 96),
        servers=3,
        server=link("1gbit", "1ms"),
        seed=23,
    ),
    AutoCase(
        "noisy-speeds",
        "exact",
        8,
        {"throughput": "100/s", "variation": {"kind": "lognormal", "sigma": 0.2}, **link("200mbit", "200us")},
        (128, 64),
        seed=24,
    ),
    AutoCase(
        "slow-worker",
        "rounded",
        6,
        {"throughput": "200/s", **link("200mbit", "200us")},
        (128, 64),
        cluster={"groups": [{"name": "slow", "ranks": [5], "speed": 0.4}]},
        seed=25,
    ),
    AutoCase(
        "unequal-links",
        "exact",
        7,
        {"throughput": "200/s", **link("400mbit", "200us")},
        (128, 64),
        cluster={"groups": [{"name": "far", "ranks": [2, 6], "uplink": "60mbit", "downlink": "60mbit"}]},
        seed=26,
    ),
    AutoCase(
        "jitter",
        "exact",
        9,
        {"throughput": "400/s", **link("150mbit", "300us", jitter={"kind": "normal", "deviation": "2ms"})},
        (96, 64),
        seed=27,
    ),
    AutoCase(
        "jitter-lossy",
        "lossy",
        4,
        {"throughput": "400/s", **link("40mbit", "1ms", jitter={"kind": "lognormal", "deviation": "3ms"})},
        (96, 64),
        seed=28,
    ),
    AutoCase(
        "asymmetric",
        "rounded",
        8,
        {"throughput": "50/s", "uplink": "20mbit", "downlink": "200mbit", "delay": "8ms"},
        (80, 40),
        seed=29,
    ),
    AutoCase("many-workers", "exact", 16, {"throughput": "500/s", **link("50mbit", "100us")}, (64, 64), seed=30),
)
