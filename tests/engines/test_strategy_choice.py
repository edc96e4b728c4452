"""Strategy `auto` on the engines in real time: candidates train on the nodes of the run before its trial."""

from pathlib import Path
from typing import Any

import pytest

import ensayo

WORKERS = 4


def make_document(engine: str, **link: Any) -> dict[str, Any]:
    """Return a scenario in which a ring of four workers is predicted to be slightly faster than recursive doubling.

    A step computes for 40 ms; a ring has six rounds, and recursive doubling has two.
    """
    return {
        "name": "choice",
        "workload": {
            "dataset": {"kind": "digits"},
            "model": {"kind": "mlp", "hidden": [64]},
            "optimiser": {"kind": "sgd", "rate": 0.1},
            "batch": 64,
            "epochs": 2,
        },
        "cluster": {
            "workers": WORKERS,
            "worker": {"throughput": "400/s", "uplink": "100mbit", "downlink": "100mbit", **link},
        },
        "strategies": {
            "chosen": {
                "kind": "auto",
                "probe_steps": 10,
                "candidates": [
                    {"kind": "all_reduce", "collective": {"kind": kind}} for kind in ("ring", "recursive_doubling")
                ],
            }
        },
        "baseline": False,
        "engine": engine,
    }


@pytest.mark.wall_clock
def test_probes_of_real_nodes_overturn_a_prediction_that_neglects_jitter(tmp_path: Path) -> None:
    """Every round of a collective waits for the latest message, and closed forms know no jitter."""
    jitter = {"delay": "10us", "jitter": {"kind": "normal", "deviation": "10ms"}}

    result = ensayo.rehearse(make_document("local", **jitter), runs_folder=tmp_path)

    [trial] = result.summary["trials"]
    by_name = {each["name"]: each for each in trial["strategy_choice"]["candidates"]}
    ring, doubling = by_name["all_reduce"], by_name["all_reduce (collective recursive_doubling)"]
    assert ring["predicted_step_seconds"] < doubling["predicted_step_seconds"]
    assert doubling["probe_step_seconds"] < ring["probe_step_seconds"]
    assert trial["strategy_choice"]["chosen"] == doubling["name"]
    assert trial["strategy_choice"]["probe_step_seconds"] == pytest.approx(trial["typical_step_seconds"], rel=0.25)


@pytest.mark.docker
def test_probes_run_in_containers_of_their_own(tmp_path: Path) -> None:
    """The trial starts anew after them: it uses every sample of its budget and logs no step of a probe."""
    result = ensayo.rehearse(make_document("docker"), runs_folder=tmp_path)

    [trial] = result.summary["trials"]
    choice = trial["strategy_choice"]
    assert [each["decision"].split(",")[0] for each in choice["candidates"]].count("chosen") == 1
    assert all(each["probe_step_seconds"] > 0.04 for each in choice["candidates"])
    assert choice["measured_step_seconds"] == pytest.approx(choice["probe_step_seconds"], rel=0.1)
    assert trial["status"] == "success"
    probes = sorted(folder.name for folder in (result.folder / "probes").iterdir())
    assert len(probes) == len(choice["candidates"])
