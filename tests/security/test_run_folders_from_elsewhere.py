"""A run folder, or a scenario file, that comes from elsewhere cannot write outside of its folder."""

import time
from pathlib import Path

import pytest
from pydantic import ValidationError

from analysis.reading.plan_view import TrialPlan
from analysis.reading.run_folder import RunFolder
from compose.runs.interrupted_run import read_interrupted_run
from compose.scenario_files.load import load_scenario
from compose.scenario_files.problems import ScenarioError
from compose.scenario_files.yaml_document import parse_yaml
from services.schema.errors import UserError
from services.schema.folder_links import check_has_no_outward_links

TRIAL = "000-ring"


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    """A run folder with one trial, and a file outside of it."""
    folder = tmp_path / "runs" / "scenario" / "run"
    (folder / "trials" / TRIAL / "logs").mkdir(parents=True)
    (folder / "manifest.json").write_text('{"run": "run"}')
    (tmp_path / "profile").write_text("mine")
    return folder


@pytest.mark.parametrize("name", ["report.html", "figures", f"trials/{TRIAL}/steps.csv", f"trials/{TRIAL}/logs/x.log"])
def test_a_link_that_leads_out_of_a_run_folder_stops_report_and_resume(
    run_folder: Path, tmp_path: Path, name: str
) -> None:
    """Report, export and resume write to fixed names: through the link they would replace a file of the user."""
    (run_folder / name).symlink_to(tmp_path / "profile")

    with pytest.raises(UserError, match="outside of the run folder"):
        RunFolder(run_folder).check_is_run_folder()
    with pytest.raises(UserError, match="outside of the run folder"):
        read_interrupted_run(run_folder)
    assert (tmp_path / "profile").read_text() == "mine"


def test_links_within_a_run_folder_and_to_a_run_folder_are_followed(run_folder: Path, tmp_path: Path) -> None:
    """`runs/latest` is a link, and a user may link files of one run."""
    (run_folder / "copy.json").symlink_to("manifest.json")
    (tmp_path / "latest").symlink_to(run_folder)

    RunFolder(run_folder).check_is_run_folder()
    RunFolder(tmp_path / "latest").check_is_run_folder()


def test_a_loop_of_links_is_refused(run_folder: Path) -> None:
    (run_folder / "a").symlink_to("b")
    (run_folder / "b").symlink_to("a")

    with pytest.raises(UserError, match="a symbolic link without a target"):
        check_has_no_outward_links(run_folder)


@pytest.mark.parametrize("name", ["../../../profile", "..", "a/b", "", "a\0b"])
def test_a_plan_cannot_name_a_path_outside_of_its_export(name: str) -> None:
    """Exports have a folder or a file with the name of each trial and node."""
    plan = {"trial": TRIAL, "label": "ring", "workers": 1, "nodes": [{"name": "worker-0", "role": "worker", "rank": 0}]}
    TrialPlan.model_validate(plan)

    with pytest.raises(ValidationError, match="is not the name of a file"):
        TrialPlan.model_validate(plan | {"trial": name})
    with pytest.raises(ValidationError, match="is not the name of a file"):
        TrialPlan.model_validate(plan | {"nodes": [{"name": name, "role": "worker", "rank": 0}]})


@pytest.mark.parametrize("key", ["name", "label"])
@pytest.mark.parametrize("name", ["../outside", "/outside", "a/b", ".."])
def test_names_of_scenarios_and_strategies_cannot_be_paths(key: str, name: str) -> None:
    """They are parts of the path of a run folder."""
    document = {
        "name": name if key == "name" else "fine",
        "workload": {
            "dataset": {"kind": "digits"},
            "model": {"kind": "linear"},
            "optimiser": {"kind": "sgd", "rate": 0.1},
        },
        "cluster": {"workers": 2},
        "strategies": {name if key == "label" else "ring": {"kind": "all_reduce"}},
    }
    with pytest.raises(ScenarioError, match=r"is not allowed; use only lower-case letters|name"):
        load_scenario(document)


def test_an_alias_bomb_in_a_run_folder_is_read_without_memory(run_folder: Path) -> None:
    """PyYAML expands aliases to references: nine levels of nine aliases stay nine lists."""
    levels = ["name: bomb", "a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    levels += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]
    (run_folder / "scenario.yaml").write_text("\n".join(levels))

    started = time.process_time()
    assert RunFolder(run_folder).scenario_name == "bomb"
    assert time.process_time() - started < 1.0


def test_an_alias_bomb_in_a_scenario_file_is_rejected_at_once() -> None:
    """Nine levels of nine aliases are 387 million items ("billion laughs")."""
    levels = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    levels += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9)]

    started = time.process_time()
    with pytest.raises(ScenarioError, match="more than 20,000 keys and list items"):
        parse_yaml("\n".join(levels), "bomb.yaml")
    assert time.process_time() - started < 5.0


def test_python_tags_of_yaml_are_not_executed(run_folder: Path, tmp_path: Path) -> None:
    """Only the types of JSON are read, in scenario files and in run folders."""
    text = f"name: !!python/object/apply:os.system ['touch {tmp_path}/executed']\n"
    (run_folder / "scenario.yaml").write_text(text)

    assert RunFolder(run_folder).read_yaml("scenario.yaml") == {}
    with pytest.raises(ScenarioError, match=r"python/object/apply:os\.system is not supported"):
        parse_yaml(text, "scenario.yaml")
    assert not (tmp_path / "executed").exists()
