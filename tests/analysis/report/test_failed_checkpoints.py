"""Checkpoints that could not be written, in the report."""

import json
from collections.abc import Callable

import jsonschema
import pytest

from analysis.reading.run_folder import RunFolder
from analysis.report.report import write_report

REASON = "can't be written: No space left on device; the file needs 900 bytes"


def test_report_lists_checkpoints_that_could_not_be_written(
    make_run: Callable[..., RunFolder], line: Callable[..., str], pytestconfig: pytest.Config
) -> None:
    folder = make_run(strategies=("ring",), workers=(2,), baseline=False)
    (trial,) = folder.trial_folders
    value = {"seconds": 0.004, "reason": REASON}
    with trial.log_path("worker-1").open("a") as file:
        file.write(line("checkpoint_failed", value, 100.25, "worker-1", step=20) + "\n")

    page = write_report(folder.path).read_text()

    summary = json.loads(folder.summary_path.read_text())
    (failed,) = summary["trials"][0]["failed_checkpoints"]
    assert failed == {
        "node": "worker-1",
        "step": 20,
        "time_s": pytest.approx(0.25),
        "seconds": 0.004,
        "reason": REASON,
    }
    schema = json.loads((pytestconfig.rootpath / "analysis" / "results" / "summary.schema.json").read_text())
    jsonschema.validate(summary, schema)
    assert "<h2>Checkpoints that could not be written</h2>" in page
    assert "No space left on device; the file needs 900 bytes" in page


def test_reports_without_failed_checkpoints_have_no_such_section(make_run: Callable[..., RunFolder]) -> None:
    page = write_report(make_run(strategies=("ring",), workers=(2,), baseline=False).path).read_text()

    assert "could not be written" not in page
