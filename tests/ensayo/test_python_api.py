"""The Python API: its names, the forms of a scenario, its errors, and the snippet of the README."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import ensayo
from analysis.figures import FIGURES
from analysis.figures.drawing.save import PNG_DPI
from analysis.results.data_frames import make_curve_frame, make_trial_frame
from ensayo.rehearsal import FinishedRunResult, rehearse

pytestmark = pytest.mark.without_nodes

SHIPPED_FILE = ensayo.find("smoke")
SHIPPED_DOCUMENT: dict[str, Any] = yaml.safe_load(SHIPPED_FILE.read_text(encoding="utf-8"))
SCENARIO_FORMS = {
    "name": "smoke",
    "path as text": str(SHIPPED_FILE),
    "path": SHIPPED_FILE,
    "dict": SHIPPED_DOCUMENT,
    "Scenario": ensayo.load(SHIPPED_FILE),
}

SHORT_DOCUMENT = SHIPPED_DOCUMENT | {"strategies": {"ring": {"kind": "all_reduce"}}, "baseline": True}
SHORT_SETTINGS = {"workload.epochs": 1}

# Accesses every public name, imports every module of the package, and accesses every public name again.
REPEATED_ACCESS = """
import importlib, pkgutil
import ensayo

first = {name: getattr(ensayo, name) for name in ensayo.NAMES}
assert first == {name: getattr(ensayo, name) for name in ensayo.NAMES}
for module in pkgutil.iter_modules(ensayo.__path__, "ensayo."):
    if module.name != "ensayo.__main__":
        importlib.import_module(module.name)
for name, value in first.items():
    assert getattr(ensayo, name) is value, name
"""


@pytest.mark.parametrize("name", ensayo.NAMES)
def test_every_public_name_can_be_imported(name: str) -> None:
    """Names are imported when they are first used, so a wrong module shows only then."""
    assert callable(getattr(ensayo, name))


def test_a_public_name_stays_the_same_after_the_import_of_any_module() -> None:
    """Python sets an imported submodule as attribute of its package, which would hide a public name."""
    done = subprocess.run([sys.executable, "-c", REPEATED_ACCESS], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize("form", SCENARIO_FORMS)
def test_every_form_of_a_scenario_loads_the_same_scenario(form: str) -> None:
    """A notebook has a dict or a changed Scenario; it should not have to write a file first."""
    assert ensayo.load(SCENARIO_FORMS[form]) == SCENARIO_FORMS["Scenario"]


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("cluster.workers", 4, "4"),
        ("workload.optimiser.rate", 0.01, "0.01"),
        ("baseline", True, "true"),
        ("workload.model.hidden", [16, 8], "[16, 8]"),
        ("workload.optimiser", {"kind": "adam", "rate": 0.1}, "{kind: adam, rate: 0.1}"),
        ("sweep", {"workers": (1, 2)}, "{workers: [1, 2]}"),
        ("cluster.workers", np.int64(4), "4"),
        ("sweep", {"workers": np.array([1, 2])}, "{workers: [1, 2]}"),
    ],
)
def test_a_setting_is_a_python_value_or_its_yaml_text(key: str, value: object, text: str) -> None:
    """Numbers, lists and dicts are written in Python as they are; the command line has only text."""
    assert ensayo.load("smoke", {key: value}) == ensayo.load("smoke", {key: text})
    assert ensayo.load("smoke", {key: value}) != ensayo.load("smoke")


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> FinishedRunResult:
    """Result of a short run in virtual time, whose scenario is given as a dict."""
    return rehearse(SHORT_DOCUMENT, "simulated", str(tmp_path_factory.mktemp("runs")), SHORT_SETTINGS)


def test_scenarios_are_rehearsed_repeatedly_in_one_program(finished_run: FinishedRunResult, tmp_path: Path) -> None:
    """A sweep that is written in Python calls `rehearse` in a loop.

    The run folder keeps the text of a scenario that was given as a dict, so that the run can be repeated.
    """
    again = rehearse(finished_run.folder / "scenario.yaml", "simulated", tmp_path, SHORT_SETTINGS)
    once_more = rehearse(ensayo.load(SHORT_DOCUMENT), "simulated", tmp_path, SHORT_SETTINGS)

    assert finished_run.verdict == "valid", finished_run.reasons
    assert len({finished_run.folder, again.folder, once_more.folder}) == 3
    assert yaml.safe_load((finished_run.folder / "scenario.yaml").read_text()) == SHORT_DOCUMENT
    summaries = [json.loads((run.folder / "summary.json").read_text()) for run in (finished_run, again, once_more)]
    assert summaries[0]["trials"] == summaries[1]["trials"] == summaries[2]["trials"]


def test_an_error_in_a_dict_names_its_keys() -> None:
    """The text that is written from a dict has lines, but the user cannot see them."""
    wrong = SHIPPED_DOCUMENT | {"seed": "one", "worker": 2}

    with pytest.raises(ensayo.ScenarioError) as caught:
        ensayo.load(wrong)

    problems = [str(problem).split(": ")[:2] for problem in caught.value.problems]
    assert problems == [["scenario dict", "seed"], ["scenario dict", "worker"]]


@pytest.mark.parametrize("settings", ["cluster.workers=4", ["cluster.workers=4"], {4: "cluster.workers"}])
def test_settings_that_are_no_dict_of_keys_are_an_error_that_shows_one(settings: Any) -> None:
    """Arguments in the form of the command line ended with an AttributeError."""
    with pytest.raises(
        ensayo.UserError, match=r'^settings: write a dict of dotted keys, such as {"cluster.workers": 4}'
    ):
        ensayo.load("smoke", settings)


@pytest.mark.parametrize("form", [str, Path])
def test_a_missing_file_is_reported_alike_as_text_and_as_path(form: Any) -> None:
    with pytest.raises(ensayo.UserError, match=r"^mine\.yaml: file not found$"):
        ensayo.load(form("mine.yaml"))


def test_runs_are_reported_and_compared_by_the_text_of_their_path(finished_run: FinishedRunResult) -> None:
    folder = str(finished_run.folder)

    assert ensayo.report(folder) == finished_run.folder / "report.html"
    assert ensayo.compare(folder, folder) == ensayo.compare(finished_run.folder, finished_run.folder)


def test_an_error_of_a_setting_names_its_key_and_value() -> None:
    with pytest.raises(ensayo.ScenarioError, match=r"^--set cluster.worker.uplink=1: .*: 1 has no unit"):
        ensayo.load("smoke", {"cluster.worker.uplink": 1})


@pytest.mark.parametrize("call", [ensayo.load, ensayo.rehearse])
def test_another_type_of_scenario_is_an_error_that_names_the_allowed_types(call: Any) -> None:
    with pytest.raises(ensayo.UserError, match=r"can't be given as list; allowed are the name .*, a dict .* Scenario$"):
        call(["smoke"])


@pytest.mark.parametrize("name", ["UserError", "ScenarioError", "HostError"])
def test_every_public_error_is_caught_as_ensayo_error(name: str) -> None:
    """A program can catch all errors of the API by one class."""
    assert issubclass(getattr(ensayo, name), ensayo.EnsayoError)


def test_the_data_frame_of_trials_has_one_row_per_trial(finished_run: FinishedRunResult) -> None:
    trials = finished_run.trials

    assert list(trials["trial"]) == sorted(path.name for path in (finished_run.folder / "trials").iterdir())
    assert list(trials["workers"]) == [1, 2]
    assert (trials["training_s"] * trials["samples_per_s"]).tolist() == pytest.approx(trials["samples"].tolist())


def test_every_swept_key_has_a_column(finished_run: FinishedRunResult) -> None:
    """A program groups trials by the values of the sweep; the number of workers has its column already."""
    (trial, *_) = json.loads((finished_run.folder / "summary.json").read_text())["trials"]

    trials = make_trial_frame({"trials": [trial | {"labels": {"workers": 1, "cluster.worker.uplink": "1mbit"}}]})

    assert list(trials["cluster.worker.uplink"]) == ["1mbit"]
    assert list(trials.columns).count("workers") == 1


def test_the_data_frame_of_steps_has_one_row_per_worker_and_step(finished_run: FinishedRunResult) -> None:
    trials, steps = finished_run.trials.set_index("trial"), finished_run.steps.groupby("trial")

    assert steps.size().to_dict() == (trials["steps"] * trials["workers"]).to_dict()
    assert steps["samples"].sum().to_dict() == trials["samples"].to_dict()
    assert (finished_run.steps["step_s"] >= finished_run.steps["compute_s"]).all()


def test_the_data_frame_of_evaluations_ends_with_the_final_quality(finished_run: FinishedRunResult) -> None:
    accuracy = finished_run.evals.query("metric == 'accuracy'").sort_values("time_s").groupby("trial")["value"]

    assert accuracy.last().to_dict() == finished_run.trials.set_index("trial")["final_accuracy"].to_dict()


def test_the_data_frame_of_curves_has_the_speedup_over_the_baseline(finished_run: FinishedRunResult) -> None:
    (point,) = finished_run.curves.to_dict("records")

    assert (point["strategy"], point["base_strategy"], point["workers"]) == ("ring", "none", 2)
    assert point["speedup"] == pytest.approx(point["base_time_s"] / point["time_s"])


def test_a_run_without_curves_has_an_empty_data_frame_of_curves() -> None:
    """A program that selects a column of the curves should find no rows, not fail."""
    assert make_curve_frame({"curves": []})["speedup"].empty


def test_the_summary_of_a_result_is_the_content_of_summary_json(finished_run: FinishedRunResult) -> None:
    assert finished_run.summary == json.loads((finished_run.folder / "summary.json").read_text())


@pytest.mark.parametrize("name", FIGURES)
def test_a_plot_is_the_figure_of_the_report(finished_run: FinishedRunResult, name: str, tmp_path: Path) -> None:
    """A user who shows the figure in a notebook and one who opens the page must see the same.

    A figure that is not in the report is an error that states the missing data.
    """
    picture_in_report = finished_run.folder / "figures" / f"{name}.png"

    if picture_in_report.exists():
        finished_run.plot(name).savefig(tmp_path / "plot.png", dpi=PNG_DPI, metadata={"Software": "Ensayo"})
        assert (tmp_path / "plot.png").read_bytes() == picture_in_report.read_bytes()
    else:
        with pytest.raises(ensayo.UserError, match=f"^this run has no figure '{name}'; the figure needs .*[a-z]$"):
            finished_run.plot(name)


def test_an_unknown_figure_is_an_error_that_lists_the_figures(finished_run: FinishedRunResult) -> None:
    with pytest.raises(
        ensayo.UserError, match=r"^there is no figure 'speed'; the figures are time_to_target, .*worker_data$"
    ):
        finished_run.plot("speed")


def test_a_plan_predicts_every_trial_of_the_run(finished_run: FinishedRunResult) -> None:
    """A user compares the plan with the results; `plan` therefore takes the arguments of `rehearse`."""
    plan = ensayo.plan(SHORT_DOCUMENT, "simulated", SHORT_SETTINGS)

    keys = ["trial", "strategy", "workers", "servers", "repeat", "seed", "baseline", "steps"]
    assert plan[keys].to_dict("records") == finished_run.trials[keys].to_dict("records")
    assert plan["step_s"].tolist() == pytest.approx(finished_run.trials["predicted_step_s"].tolist())
    assert plan["training_s"].tolist() == pytest.approx(finished_run.trials["training_s"].tolist(), rel=0.1)


def test_a_plan_has_a_column_per_swept_key_and_a_row_per_phase() -> None:
    settings = {"sweep": {"cluster.worker.uplink": ["10mbit", "100mbit"]}, "repeats": 1}

    plan = ensayo.plan("strategy-switch", "simulated", settings)

    switching = plan[plan["strategy"] == "switch"]
    assert list(switching["phase"]) == ["before switch", "after switch"] * 2
    assert list(switching["cluster.worker.uplink"]) == ["10mbit"] * 2 + ["100mbit"] * 2
    assert list(switching["steps"].isna()) == [False, True] * 2


def test_a_plan_states_which_step_and_training_times_are_only_estimated() -> None:
    """Lost packets are sent again, which no closed form contains."""
    exact = ensayo.plan(SHORT_DOCUMENT, "simulated")
    lossy = ensayo.plan(SHORT_DOCUMENT, "simulated", {"cluster.worker.loss": {"kind": "independent", "share": 0.01}})

    for reason in ("step_inapplicable_reason", "training_inapplicable_reason"):
        assert set(exact[reason]) == {""}
        assert lossy.loc[~lossy["baseline"], reason].str.contains("packets are lost").all()


def test_a_plan_has_one_reason_for_both_phases_of_a_training_time_that_is_only_estimated() -> None:
    """Losses decide when the shipped scenario switches: the time of a step is known, but not the number of steps."""
    plan = ensayo.plan("strategy-switch", "simulated", {"repeats": 1})

    switching = plan[plan["strategy"] == "switch"]
    assert list(switching["step_inapplicable_reason"]) == ["", ""]
    assert list(switching["training_inapplicable_reason"]) == ["losses decide when the strategy switches", ""]


def test_the_wall_time_of_a_plan_is_known_only_for_real_nodes() -> None:
    """The wall time of trials in virtual time is not predicted; 0 would look like a prediction."""
    assert ensayo.plan(SHORT_DOCUMENT, "simulated")["training_wall_s"].isna().all()
    local = ensayo.plan(SHORT_DOCUMENT, "local", {"dilation": 100})
    assert local["training_wall_s"].tolist() == pytest.approx((100 * local["training_s"]).tolist())


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 1])
def test_the_snippets_of_the_readme_run(pytestconfig: pytest.Config, tmp_path: Path, number: int) -> None:
    """The snippets are the first code that a user of the API copies."""
    readme = (pytestconfig.rootpath / "README.md").read_text(encoding="utf-8")
    snippet = re.findall(r"^```python\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)[number]

    done = subprocess.run(
        [sys.executable, "-c", snippet], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300
    )

    assert done.returncode == 0, done.stderr[-2000:]
    if number == 0:
        assert re.fullmatch(r"valid \S+/report\.html", done.stdout.splitlines()[-1])
    else:
        assert (tmp_path / "speedup.png").stat().st_size > 0
