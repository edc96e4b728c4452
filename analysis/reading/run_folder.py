"""Paths of the files in run folders and trial folders.

No other module of the analysis knows the file names.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import TypeAdapter, ValidationError

from services.scenario.checked_study import CHECKED_STUDIES
from services.scenario.published_curves import PublishedCurve
from services.schema.errors import UserError
from services.schema.folder_links import check_has_no_outward_links

# Errors of PyYAML's constructors, for example for the date 2001-13-40, besides YAMLError.
YAML_ERRORS = (yaml.YAMLError, ValueError, TypeError, LookupError, AttributeError, RecursionError)
SKIPPED_TRIAL_KEYS = {"trial", "strategy", "workers", "labels", "reason"}
ATTEMPTS_FOLDER = "attempts"  # of a run: has a folder <trial>-<number> per repeated or interrupted attempt
PUBLISHED_ADAPTER = TypeAdapter(tuple[PublishedCurve, ...])


def read_json(path: Path) -> dict[str, Any]:
    """Read the JSON object in a file.

    Return an empty dict if the file is missing or was cut off.
    """
    try:
        return parse_json_object(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def parse_json_object(text: str) -> dict[str, Any]:
    """Parse the JSON object in a text.

    Return an empty dict if the text is no JSON object or was cut off.
    """
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):  # the second: lists or objects nested a thousand levels deep
        return {}
    return content if isinstance(content, dict) else {}


def write_json(path: Path, json_value: object) -> Path:
    """Write a value to a file as indented JSON, and return the path of the file."""
    path.write_text(json.dumps(json_value, indent=2) + "\n", encoding="utf-8")
    return path


@dataclass(frozen=True)
class TrialFolder:
    """Folder `trials/<nnn>-<label>` of one trial in a run folder."""

    path: Path

    @property
    def parent_run_folder(self) -> "RunFolder":
        """Folder of the run that the trial belongs to."""
        return RunFolder(self.path.parent.parent)

    @property
    def plan_path(self) -> Path:
        """Path of plan.json: all decisions made before the trial started."""
        return self.path / "plan.json"

    @property
    def status_path(self) -> Path:
        """Path of status.json: how the trial ended, written by the engine."""
        return self.path / "status.json"

    @property
    def fidelity_json_path(self) -> Path:
        """Path of fidelity.json: the fidelity verdict on the trial, written by the analysis."""
        return self.path / "fidelity.json"

    @property
    def link_events_path(self) -> Path:
        """Path of events.jsonl: changes of links that the engine applied during the trial, one JSON object per line."""
        return self.path / "events.jsonl"

    @property
    def merged_log_path(self) -> Path:
        """Path of result.txt: the log lines of all nodes, merged by time."""
        return self.path / "result.txt"

    @property
    def collective_csv_path(self) -> Path:
        """Path of collectives.csv: one row per node and collective of a user's command."""
        return self.path / "collectives.csv"

    @property
    def step_csv_path(self) -> Path:
        """Path of steps.csv: one row per worker and training step."""
        return self.path / "steps.csv"

    @property
    def earlier_attempts(self) -> tuple["TrialFolder", ...]:
        """Folders `attempts/<trial>-<number>` of repeated or interrupted attempts, in the order in which they ran."""
        paths = self.parent_run_folder.path.glob(f"{ATTEMPTS_FOLDER}/{self.path.name}-*")
        return tuple(sorted(map(TrialFolder, paths), key=lambda folder: folder.attempt_number))

    def find_attempt(self, name: str) -> "TrialFolder | None":
        """Return the attempt at the same trial before this one whose path in the run folder is `name`; None without."""
        attempts = self.earlier_attempts
        if self.path.parent.name == ATTEMPTS_FOLDER:
            trial = self.parent_run_folder.trial_folder(self.path.name.rpartition("-")[0])
            attempts = tuple(each for each in trial.earlier_attempts if each.attempt_number < self.attempt_number)
        return next((each for each in attempts if f"{ATTEMPTS_FOLDER}/{each.path.name}" == name), None)

    @property
    def attempt_number(self) -> int:
        """Number of an attempt, which is the end of the name of its folder."""
        return int(self.path.name.rpartition("-")[2])

    @property
    def log_paths(self) -> tuple[Path, ...]:
        """Paths of the node logs, sorted by name.

        The log of the coordinator comes first.
        """
        return tuple(sorted(self.path.glob("logs/*.log")))

    def log_path(self, node_name: str) -> Path:
        """Return the path of a node's log."""
        return self.path / "logs" / f"{node_name}.log"


@dataclass(frozen=True)
class RunFolder:
    """Folder `runs/<scenario>/<run id>` of one run."""

    path: Path

    @property
    def trial_folders(self) -> tuple[TrialFolder, ...]:
        """Folders of the trials that have a plan, in the order in which the trials run."""
        return tuple(TrialFolder(plan_path.parent) for plan_path in sorted(self.path.glob("trials/*/plan.json")))

    @property
    def total_log_bytes(self) -> int:
        """Total size of the node logs of all trials, in bytes."""
        return sum(path.stat().st_size for folder in self.trial_folders for path in folder.log_paths)

    def trial_folder(self, trial_name: str) -> TrialFolder:
        """Return the folder of a trial."""
        return TrialFolder(self.path / "trials" / trial_name)

    def check_is_run_folder(self) -> None:
        """Raise UserError if the folder has neither manifest.json nor trials, or a link that leads out of it.

        The analysis writes into run folders only. A run folder may come from elsewhere.
        """
        if not self.trial_folders and not self.manifest:
            raise UserError(f"{self.path}: not a run folder; a run folder has manifest.json and trials/")
        check_has_no_outward_links(self.path)

    @property
    def manifest(self) -> dict[str, Any]:
        """Content of manifest.json: versions, host and seeds.

        The result is empty if the run ended before the file was written.
        """
        return read_json(self.path / "manifest.json")

    @property
    def trials_without_plan(self) -> tuple[str, ...]:
        """Names of the trials that have a folder without a plan."""
        folders = sorted(path for path in self.path.glob("trials/*") if path.is_dir())
        return tuple(path.name for path in folders if not TrialFolder(path).plan_path.is_file())

    @property
    def trials_not_run(self) -> tuple[str, ...]:
        """Names of the planned trials that have no folder: the run was interrupted or is still running."""
        planned = self.manifest.get("trials")
        names = planned if isinstance(planned, list) else []  # manifests of older versions do not list the trials
        existing = {path.name for path in self.path.glob("trials/*") if path.is_dir()}
        return tuple(name for name in names if isinstance(name, str) and name not in existing)

    @property
    def skipped_trials(self) -> tuple[dict[str, Any], ...]:
        """Trials that this host could not run and that the scenario allows to skip, as the manifest records them.

        Records with missing keys are left out.
        """
        skipped = self.manifest.get("skipped")
        records = skipped if isinstance(skipped, list) else []
        return tuple(each for each in records if isinstance(each, dict) and each.keys() >= SKIPPED_TRIAL_KEYS)

    @property
    def figures_folder_path(self) -> Path:
        """Path of the folder of figures and their tables."""
        return self.path / "figures"

    @property
    def exports_folder_path(self) -> Path:
        """Path of the folder of exports for other tools."""
        return self.path / "exports"

    @property
    def summary_path(self) -> Path:
        """Path of summary.json: all numbers of the run."""
        return self.path / "summary.json"

    @property
    def report_path(self) -> Path:
        """Path of report.html: the report as a web page."""
        return self.path / "report.html"

    @property
    def scenario_name(self) -> str:
        """Name of the scenario of the run.

        If scenario.yaml does not have it, it is the name of the folder above the run folder.
        """
        name = self.read_yaml("scenario.yaml").get("name")
        return name if isinstance(name, str) and name else self.path.resolve().parent.name

    @property
    def published_speedups(self) -> tuple[PublishedCurve, ...]:
        """Published speedups of other studies that the scenario quotes.

        The result is empty if these speedups cannot be read.
        """
        try:
            return self.read_published_speedups()
        except ValidationError:
            return ()

    @property
    def study_of_claims(self) -> str:
        """Name of the study whose claims the report checks; empty if the scenario names none that is known."""
        name = self.read_yaml("scenario.yaml").get("claims")
        return name if name in CHECKED_STUDIES else ""

    @property
    def first_scenario_comment(self) -> str:
        """First comment of scenario.yaml up to an empty line: the question that the scenario answers."""
        comment: list[str] = []
        for line in map(str.strip, self._read_text("scenario.yaml").splitlines()):
            if line.startswith("#") and line.strip("# ") and "yaml-language-server" not in line:
                comment.append(line.lstrip("# "))
            elif comment or (line and not line.startswith("#")):
                break
        return " ".join(comment)

    def read_published_speedups(self) -> tuple[PublishedCurve, ...]:
        """Read the speedups of other studies that the scenario quotes in its section `published`.

        Raises:
            ValidationError: the section `published` was cut off or written by another version.
        """
        return PUBLISHED_ADAPTER.validate_python(self.read_yaml("scenario.yaml").get("published", ()))

    def read_yaml(self, file_name: str) -> dict[str, Any]:
        """Read the mapping in a YAML file of the run.

        Return an empty dict if the file is missing or was cut off.
        """
        try:
            content = yaml.safe_load(self._read_text(file_name))
        except YAML_ERRORS:
            return {}
        return content if isinstance(content, dict) else {}

    def _read_text(self, file_name: str) -> str:
        path = self.path / file_name
        return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
