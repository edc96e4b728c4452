"""A run folder that comes from elsewhere cannot put elements or scripts into the pages of its report."""

import json
from collections import Counter
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from analysis.reading.run_folder import RunFolder
from analysis.report import report

# Long labels leave no room for axes.
pytestmark = pytest.mark.filterwarnings("ignore:constrained_layout not applied")

MakeRun = Callable[..., RunFolder]
MARKUP = "\"'><script>alert(1)</script><img src=x onerror=alert(1)>{{ 7 * 191 }}"
# Values with a fixed set of meanings: another value is an error, or another thing, and not a text that is shown.
FIXED_VALUES = {"kind", "role", "engine", "trial", "metric", "formula_kind", "mechanism", "status", "event_type", "key"}


class ElementCounter(HTMLParser):
    """Counts the elements of a page, and keeps its attributes that execute or load something."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.active_attributes: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        for name, value in attrs:
            is_script_link = (value or "").strip().lower().startswith(("javascript:", "data:text"))
            if name.startswith("on") or name == "srcdoc" or (is_script_link and name in {"href", "src", "action"}):
                self.active_attributes.append(f"{tag} {name}={value}")


def add_markup(value: Any, key: str = "") -> Any:
    """Return a JSON value with markup at the end of each free text."""
    if isinstance(value, dict):
        return {name: add_markup(each, name) for name, each in value.items()}
    if isinstance(value, list):
        return [add_markup(each, key) for each in value]
    return value + MARKUP if isinstance(value, str) and key not in FIXED_VALUES else value


def rewrite_json(path: Path, change: Callable[[Any], Any]) -> None:
    path.write_text(json.dumps(change(json.loads(path.read_text()))))


def add_markup_to_plan(plan: dict[str, Any]) -> dict[str, Any]:
    """Node names are names of logs, so they stay."""
    changed = add_markup({key: value for key, value in plan.items() if key not in {"nodes", "bytes_per_step"}})
    swept = {f"<b onclick=alert(1)>{key}": value for key, value in changed["labels"].items()}
    return plan | changed | {"labels": swept | {"workers": plan["workers"], f"<i>{MARKUP}": MARKUP}}


def add_markup_to_log_line(line: str) -> str:
    prefix, _, text = line.partition("{")
    event = json.loads("{" + text)
    is_table = isinstance(event["value"], dict) and event["value"].keys() == {"columns", "rows"}
    if not is_table and event["key"] not in {"node_hash", "params_sha256"}:
        event["value"] = add_markup(event["value"])
    event["metadata"] = add_markup(event["metadata"], "status" if event["key"] == "run_stop" else "")
    return prefix + json.dumps(event)


@pytest.fixture
def run_with_markup(make_run: MakeRun) -> RunFolder:
    """A run folder that has markup in each text of its files, and two damaged trials."""
    folder = make_run(strategies=("ring", "ps_asp"), workers=(1, 2))
    (folder.path / "scenario.yaml").write_text(f"# Which strategy? {MARKUP}\nname: {json.dumps('x' + MARKUP)}\n")
    rewrite_json(folder.path / "manifest.json", add_markup)
    for trial in folder.trial_folders:
        rewrite_json(trial.plan_path, add_markup_to_plan)
        rewrite_json(trial.status_path, lambda status: add_markup(status) | {"reason": MARKUP})
        for log in trial.log_paths:
            log.write_text("".join(add_markup_to_log_line(line) + "\n" for line in log.read_text().splitlines()))
    damaged = folder.path / "trials" / f"099-{MARKUP.replace('/', '-')}"
    damaged.mkdir()
    (damaged / "plan.json").write_text(json.dumps({"trial": MARKUP}))
    failed = folder.trial_folders[-2]
    rewrite_json(failed.status_path, lambda status: status | {"status": "failed", "reason": f"worker-0: {MARKUP}"})
    return folder


def count_elements(page: str) -> ElementCounter:
    counter = ElementCounter()
    counter.feed(page)
    return counter


def test_texts_of_a_run_are_shown_as_texts(run_with_markup: RunFolder) -> None:
    """Names, labels, reasons and logs may come from other people; a report is opened in a browser."""
    page = report.write_report(run_with_markup.path).read_text()
    trials = json.loads(run_with_markup.summary_path.read_text())["trials"]

    assert sum(trial["status"] == "success" for trial in trials) >= 2, "the trials are readable"
    found = count_elements(page)
    assert found.tags["script"] == found.tags["img"] == found.tags["iframe"] == 0
    assert found.active_attributes == []
    assert page.count("&lt;script&gt;") > 5, "the texts are on the page"
    assert "{{ 7 * 191 }}" in page, "texts are not templates"


def test_pictures_of_figures_contain_no_markup_of_a_run(run_with_markup: RunFolder) -> None:
    """Figures are SVG, which browsers execute as well."""
    report.write_report(run_with_markup.path)

    pictures = list(run_with_markup.figures_folder_path.glob("*.svg"))
    assert pictures
    for picture in pictures:
        found = count_elements(picture.read_text())
        assert found.tags["script"] == found.tags["img"] == 0, picture.name
        assert found.active_attributes == [], picture.name
