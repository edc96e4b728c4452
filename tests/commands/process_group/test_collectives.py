"""Tests of the process group with each collective, number format and protection of streams, and with emulated links."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rank_processes import RankProcesses

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

import process_group_checks as checks  # noqa: E402 - it needs PyTorch

from services.cluster.addresses import DummyAddresses  # noqa: E402
from services.cluster.links.fluid_link import to_goodput_bytes_per_s  # noqa: E402
from services.plan import Plan, make_plan  # noqa: E402
from services.scenario.scenario import Scenario  # noqa: E402

COLLECTIVES: list[dict[str, Any]] = [
    {"kind": "ring", "small": "4KiB"},
    {"kind": "halving_doubling"},
    {"kind": "recursive_doubling"},
    {"kind": "tree"},
    {"kind": "double_tree"},
    {"kind": "hierarchical", "size": 2},
    {"kind": "hierarchical_copy", "size": 2},
    {"kind": "reduce_to_one"},
    {"kind": "reduce_to_one", "fused": False},
]


@pytest.mark.parametrize("collective", COLLECTIVES, ids=str)
def test_every_collective_sums_tensors_of_all_sizes(collective: dict[str, Any], tmp_path: Path) -> None:
    """A script sums one loss, then buckets of millions of entries."""
    with RankProcesses(4, tmp_path, collective=collective) as ranks:
        for size in (1, 3, 1000, 300_001):
            results = ranks.call(checks.all_reduce_normal, size)
            assert len({data for data, _, _ in results}) == 1
            assert all(error <= 8 * np.finfo("float32").eps * largest for _, error, largest in results)
        parameters = ranks.call(checks.train, "ddp", "ensayo")
        assert all(each == parameters[0] for each in parameters)


def test_compressed_sums_are_rounded_and_equal_on_all_ranks(tmp_path: Path) -> None:
    """Half precision has a relative error of 2⁻¹¹ per hop; whole numbers of other types stay exact."""
    with RankProcesses(3, tmp_path, compress={"kind": "fp16"}) as ranks:
        results = ranks.call(checks.all_reduce_normal, 50_001)
        exact = [
            ranks.call(checks.all_reduce_both, name, (1000,), "SUM", "contiguous") for name in ("int64", "bfloat16")
        ]
        parameters = ranks.call(checks.train, "ddp", "ensayo")
        gathered = ranks.call(checks.all_gather_both, "float32", (1001,))

    assert len({data for data, _, _ in results}) == 1
    assert all(0 < error <= 6 * 2.0**-11 * largest for _, error, largest in results)
    assert all(own == gloo for each in (*exact, gathered) for own, gloo in each)
    assert all(each == parameters[0] for each in parameters)


@pytest.mark.parametrize("protection", ["authenticated", "tls"])
def test_protected_streams_carry_the_same_sums(tmp_path: Path, protection: str) -> None:
    """Long messages fill the buffers of TLS, whose writer must not stay paused when they are empty again."""
    with RankProcesses(2, tmp_path, protection=protection, timeout_s=10) as ranks:
        for _ in range(10):
            results = ranks.call(checks.all_reduce_both, "float32", (700, 601), "SUM", "contiguous")
            assert all(own == gloo for own, gloo in results)


@pytest.mark.wall_clock
@pytest.mark.parametrize("dilation", [1, 2])
def test_sums_take_as_long_as_the_links_of_the_plan(dilation: int, tmp_path: Path) -> None:
    """Without containers the transport emulates the links: a ring of two ranks sends each vector once per direction."""
    plan = make_local_plan(dilation)
    assert plan.dilation == dilation
    file = tmp_path / "plan.json"
    file.write_text(plan.model_dump_json())

    with RankProcesses(2, tmp_path / "secrets", plan=str(file), dilation=dilation) as ranks:
        seconds = ranks.call(checks.time_of_sums, 250_000, 5)

    expected_s = dilation * 1e6 / to_goodput_bytes_per_s(100e6)
    assert max(seconds) == pytest.approx(expected_s, rel=0.1)


def make_local_plan(dilation: int) -> Plan:
    """Return a plan for the engine `local` with two workers behind links of 100 Mbit/s."""
    document = {
        "name": "links",
        "workload": {
            "dataset": {"kind": "digits"},
            "model": {"kind": "mlp", "hidden": [128, 64]},
            "optimiser": {"kind": "sgd", "rate": 0.1},
            "batch": 100,
            "epochs": 1,
        },
        "cluster": {"workers": 2, "worker": {"throughput": "1000/s", "uplink": "100mbit", "downlink": "100mbit"}},
        "strategies": {"ring": {"kind": "all_reduce"}},
        "baseline": False,
        "dilation": dilation,
    }
    (trial,) = Scenario.decode(document).trials()
    return make_plan(trial, "run", "local", DummyAddresses())
