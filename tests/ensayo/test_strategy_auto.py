"""Strategy `auto`: plan, run, summary and report show predictions, probes, the choice and its outcome."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from typer.testing import CliRunner

import ensayo
from compose.scenario_files.yaml_document import write_yaml
from ensayo.cli import app

pytestmark = pytest.mark.without_nodes

JITTER = {"jitter": {"kind": "normal", "deviation": "5ms"}}


def make_document(auto: dict[str, Any], **link: Any) -> dict[str, Any]:
    """Return a scenario in which a ring of eight workers is predicted to be slightly faster than recursive doubling."""
    collectives = ("ring", "recursive_doubling")
    return {
        "name": "jittery",
        "workload": {
            "dataset": {"kind": "digits"},
            "model": {"kind": "mlp", "hidden": [64]},
            "optimiser": {"kind": "sgd", "rate": 0.1},
            "batch": 128,
            "epochs": 2,
        },
        "cluster": {
            "workers": 8,
            "worker": {"throughput": "1600/s", "uplink": "100mbit", "downlink": "100mbit", "delay": "10us", **link},
        },
        "strategies": {
            "chosen": {
                "kind": "auto",
                "candidates": [{"kind": "all_reduce", "collective": {"kind": kind}} for kind in collectives],
                **auto,
            }
        },
        "baseline": False,
        "engine": "simulated",
    }


def run_document(document: dict[str, Any], runs: Path) -> tuple[dict[str, Any], str]:
    """Return the only trial of the summary of a run, and its report."""
    result = ensayo.rehearse(document, runs_folder=runs)
    [trial] = result.summary["trials"]
    return trial, (result.folder / "report.html").read_text()


def test_a_probe_in_virtual_time_overturns_a_prediction_that_neglects_jitter(tmp_path: Path) -> None:
    """Closed forms know no jitter, which delays a collective with many rounds more than one with few."""
    with_probes, _ = run_document(make_document({}, **JITTER), tmp_path / "probed")
    predicted, _ = run_document(make_document({"probes": 0}, **JITTER), tmp_path / "predicted")

    assert predicted["strategy_choice"]["chosen"] == "all_reduce"
    assert with_probes["strategy_choice"]["chosen"] == "all_reduce (collective recursive_doubling)"
    assert with_probes["step_seconds"]["mean"] < 0.9 * predicted["step_seconds"]["mean"]
    assert "jitter" in predicted["strategy_choice"]["candidates"][0]["estimate_reason"]


@pytest.mark.parametrize("period", [5, 10])
def test_the_probe_of_dynamic_shares_measures_steps_with_balanced_shares(period: int, tmp_path: Path) -> None:
    """A mean that includes the steps before the first change, a large part of a probe, would reject this candidate."""
    balances: list[dict[str, Any]] = [{"kind": "dynamic", "period": period}, {"kind": "proportional"}]
    candidates = [{"kind": "all_reduce", "balance": balance} for balance in balances]
    document = make_document({"candidates": candidates})
    numbers = {"kind": "synthetic_regression", "samples": 1600, "features": 16, "outputs": 4}
    document["workload"] |= {"dataset": numbers, "epochs": 12}  # 120 steps on whole batches
    document["cluster"]["groups"] = [{"name": "slow", "ranks": [7], "speed": 0.5}]

    choice = run_document(document, tmp_path / "both")[0]["strategy_choice"]
    document["strategies"]["chosen"]["candidates"] = candidates[:1]
    alone, _ = run_document(document, tmp_path / "dynamic")

    (probed,) = (each for each in choice["candidates"] if "dynamic" in each["name"])
    assert choice["chosen"] == "all_reduce (balance proportional)"
    assert probed["probe_step_seconds"] == pytest.approx(alone["step_seconds"]["mean"], rel=0.02)
    assert probed["predicted_step_seconds"] == pytest.approx(alone["step_seconds"]["mean"], rel=0.02)


def test_summary_and_report_have_predictions_probes_choice_and_outcome(
    tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    schema = json.loads((pytestconfig.rootpath / "analysis" / "results" / "summary.schema.json").read_text())
    result = ensayo.rehearse(make_document({}), runs_folder=tmp_path)
    jsonschema.Draft202012Validator(schema).validate(result.summary)

    [trial] = result.summary["trials"]
    choice = trial["strategy_choice"]
    chosen, other = choice["candidates"]
    assert (choice["guard"], choice["chosen"], chosen["name"]) == ("exact", "all_reduce", "all_reduce")
    assert [each["decision"].split(",")[0] for each in (chosen, other)] == ["chosen", "probed"]
    assert chosen["probe_step_seconds"] < other["probe_step_seconds"]
    assert choice["measured_step_seconds"] == pytest.approx(choice["predicted_step_seconds"], rel=0.02)
    assert choice["probe_step_seconds"] == pytest.approx(trial["typical_step_seconds"], rel=0.02)
    page = (result.folder / "report.html").read_text()
    assert "Strategies chosen among candidates" in page
    assert f"<td>{other['name']}</td><td>exact</td>" in page
    ratio = choice["measured_step_seconds"] / choice["predicted_step_seconds"]
    assert f"{ratio:.2f} times the predicted" in page


def test_a_run_without_a_choice_does_not_mention_candidates(tmp_path: Path) -> None:
    document = make_document({}) | {"strategies": {"ring": {"kind": "all_reduce"}}}

    trial, page = run_document(document, tmp_path)

    assert trial["strategy_choice"] is None
    assert "candidates" not in page


def test_the_plan_shows_the_candidates_and_the_choice_before_probes(tmp_path: Path) -> None:
    file = tmp_path / "jittery.yaml"
    file.write_text(write_yaml(make_document({"quality": "rounded", "candidates": None}), "document"))

    lines = CliRunner().invoke(app, ["plan", str(file)]).stdout.splitlines()

    start = next(number for number, line in enumerate(lines) if "quality rounded" in line)
    assert lines[start].startswith("#000 chosen, 8 workers: quality rounded, 32 candidates; chosen by prediction: all_")
    assert lines[start].endswith(
        ", the first in the list whose step is at most 1% longer than the shortest; 3 candidates will be probed before "
        "the trial"
    )
    assert sum("will be probed" in line for line in lines[start + 1 : start + 6]) == 3
    listed = [float(line.split()[0]) for line in lines[start + 1 : start + 6]]
    assert max(listed) <= 1.25 * min(listed)
    assert lines[start + 6].startswith("  ")
    assert "more candidates are possible, " in lines[start + 6]
