"""Dropped connections in the report: the table of connections that ended early, and what replaced them."""

import json
from collections.abc import Callable

import jsonschema
import pytest

from analysis.reading.run_folder import RunFolder
from analysis.report.report import write_report


def test_report_lists_connections_and_what_replaced_them(
    make_run: Callable[..., RunFolder], line: Callable[..., str], pytestconfig: pytest.Config
) -> None:
    """Two connections end, one of them twice; the last one is never replaced."""
    folder = make_run(strategies=("ring",), workers=(2,), baseline=False)
    (trial,) = folder.trial_folders
    log = {
        "connection_dropped": [("worker-1", 100.2), ("worker-1", 100.5)],
        "connection_reopened": [("worker-1", 100.25)],
    }
    values = {
        "connection_dropped": {"reason": "Connection reset by peer"},
        "connection_reopened": {"seconds": 0.05, "resent_messages": 7},
    }
    lines = [
        line(key, {"peer": peer} | values[key], at_s, "worker-0") for key, pairs in log.items() for peer, at_s in pairs
    ]
    with trial.log_path("worker-0").open("a") as file:
        file.write("\n".join(lines) + "\n")

    page = write_report(folder.path).read_text()

    summary = json.loads(folder.summary_path.read_text())
    breaks = summary["trials"][0]["connection_breaks"]
    assert [(each["node"], each["peer"], each["seconds_without"], each["resent_messages"]) for each in breaks] == [
        ("worker-0", "worker-1", 0.05, 7),
        ("worker-0", "worker-1", None, None),
    ]
    assert [each["time_s"] for each in breaks] == pytest.approx([0.2, 0.5])
    schema = json.loads((pytestconfig.rootpath / "analysis" / "results" / "summary.schema.json").read_text())
    jsonschema.validate(summary, schema)
    assert "<h2>Dropped connections</h2>" in page
    assert page.count("Connection reset by peer") == 2


def test_reports_without_dropped_connections_have_no_such_section(make_run: Callable[..., RunFolder]) -> None:
    page = write_report(make_run(strategies=("ring",), workers=(2,), baseline=False).path).read_text()

    assert "Dropped connections" not in page
