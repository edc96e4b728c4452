"""Where do things lie in a run folder? The one place that knows its file names (DESIGN, "Run directory")."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from services.errors import UserError


def read_json(path: Path) -> dict[str, Any]:
    """The object in the file; empty when the file is missing or was cut off while being written."""
    try:
        return read_object(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def read_object(text: str) -> dict[str, Any]:
    """The JSON object in the text; empty when there is none or it was cut off."""
    try:
        content = json.loads(text)
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def write_json(path: Path, content: object) -> Path:
    """Writes the file as people like to read it."""
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return path


@dataclass(frozen=True)
class TrialFolder:
    """`trials/<nnn>-<label>` of a run."""

    path: Path

    @property
    def run(self) -> "RunFolder":
        """The run that it belongs to."""
        return RunFolder(self.path.parent.parent)

    @property
    def plan(self) -> Path:
        """What was to happen."""
        return self.path / "plan.json"

    @property
    def status(self) -> Path:
        """How it ended, by the engine."""
        return self.path / "status.json"

    @property
    def fidelity(self) -> Path:
        """Whether it may be believed, by us."""
        return self.path / "fidelity.json"

    @property
    def events(self) -> Path:
        """What the engine changed of links meanwhile, a JSON object per line."""
        return self.path / "events.jsonl"

    @property
    def result(self) -> Path:
        """All nodes' lines merged by time."""
        return self.path / "result.txt"

    @property
    def steps(self) -> Path:
        """One row per worker and step."""
        return self.path / "steps.csv"

    @property
    def logs(self) -> tuple[Path, ...]:
        """What each node printed; the coordinator first."""
        return tuple(sorted(self.path.glob("logs/*.log")))

    def log(self, node: str) -> Path:
        """What this node printed."""
        return self.path / "logs" / f"{node}.log"


@dataclass(frozen=True)
class RunFolder:
    """`runs/<scenario>/<run id>`."""

    path: Path

    @property
    def trials(self) -> tuple[TrialFolder, ...]:
        """The trials that have a plan, in the order in which they were to run."""
        return tuple(TrialFolder(plan.parent) for plan in sorted(self.path.glob("trials/*/plan.json")))

    def check(self) -> None:
        """Raises UserError when this is no run's folder: nothing may be written there, or be judged."""
        if not self.trials and not self.manifest:
            raise UserError(f"{self.path}: not the folder of a run; those have manifest.json and trials")

    @property
    def manifest(self) -> dict[str, Any]:
        """Versions, host and seeds; empty when the run broke off before it was written."""
        return read_json(self.path / "manifest.json")

    @property
    def figures(self) -> Path:
        """Where figures and their tables go."""
        return self.path / "figures"

    @property
    def summary(self) -> Path:
        """All numbers of the run."""
        return self.path / "summary.json"

    @property
    def report(self) -> Path:
        """The page for people."""
        return self.path / "report.html"

    @property
    def scenario(self) -> str:
        """The scenario's name; the folder above the run when the file is gone."""
        try:
            content = yaml.safe_load(self._scenario_text())
        except yaml.YAMLError:
            content = None
        name = content.get("name") if isinstance(content, dict) else None
        return str(name or self.path.resolve().parent.name)

    @property
    def question(self) -> str:
        """The first comment of scenario.yaml: the question that the scenario answers."""
        lines = [line.strip() for line in self._scenario_text().splitlines()]
        comment: list[str] = []
        for line in lines:
            if line.startswith("#") and "yaml-language-server" not in line:
                comment.append(line.lstrip("# "))
            elif comment or (line and not line.startswith("#")):
                break
        return " ".join(comment)

    def _scenario_text(self) -> str:
        path = self.path / "scenario.yaml"
        return path.read_text(encoding="utf-8") if path.is_file() else ""
