"""Where do things lie in a run folder? The one place that knows its file names (DESIGN, "Run directory")."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import TypeAdapter, ValidationError

from services.scenario.published import Published
from services.schema.errors import UserError

PUBLISHED = TypeAdapter(tuple[Published, ...])


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

    @property
    def log_bytes(self) -> int:
        """How much all nodes of all trials printed."""
        return sum(path.stat().st_size for trial in self.trials for path in trial.logs)

    def trial(self, name: str) -> TrialFolder:
        """The folder of one trial."""
        return TrialFolder(self.path / "trials" / name)

    def check(self) -> None:
        """Raises UserError when this is no run's folder: nothing may be written there, or be judged."""
        if not self.trials and not self.manifest:
            raise UserError(f"{self.path}: not the folder of a run; those have manifest.json and trials")

    @property
    def manifest(self) -> dict[str, Any]:
        """Versions, host and seeds; empty when the run broke off before it was written."""
        return read_json(self.path / "manifest.json")

    @property
    def unplanned(self) -> tuple[str, ...]:
        """Trials that have a folder and no plan in it."""
        folders = sorted(path for path in self.path.glob("trials/*") if path.is_dir())
        return tuple(path.name for path in folders if not TrialFolder(path).plan.is_file())

    @property
    def not_run(self) -> tuple[str, ...]:
        """Trials that were to run and have no folder: the run was interrupted, or goes on."""
        planned = self.manifest.get("trials")
        names = planned if isinstance(planned, list) else []  # runs of before did not say
        return tuple(str(name) for name in names if not self.trial(str(name)).path.is_dir())

    @property
    def figures(self) -> Path:
        """Where figures and their tables go."""
        return self.path / "figures"

    @property
    def exports(self) -> Path:
        """Where the run lies as other tools read it."""
        return self.path / "exports"

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
        return str(self.document("scenario.yaml").get("name") or self.path.resolve().parent.name)

    @property
    def published(self) -> tuple[Published, ...]:
        """What others found of the same, as the scenario tells it; empty where that can't be understood."""
        try:
            return self.read_published()
        except ValidationError:
            return ()

    @property
    def question(self) -> str:
        """The first comment of scenario.yaml, up to an empty line in it: the question that the scenario answers."""
        lines = [line.strip() for line in self._text("scenario.yaml").splitlines()]
        comment: list[str] = []
        for line in lines:
            if line.startswith("#") and line.strip("# ") and "yaml-language-server" not in line:
                comment.append(line.lstrip("# "))
            elif comment or (line and not line.startswith("#")):
                break
        return " ".join(comment)

    def read_published(self) -> tuple[Published, ...]:
        """The same; raises ValidationError where the scenario was cut off in it, or is of another version."""
        return PUBLISHED.validate_python(self.document("scenario.yaml").get("published", ()))

    def document(self, name: str) -> dict[str, Any]:
        """A YAML file of keys and values; empty when it is gone or was cut off."""
        try:
            content = yaml.safe_load(self._text(name))
        except yaml.YAMLError:
            return {}
        return content if isinstance(content, dict) else {}

    def _text(self, name: str) -> str:
        path = self.path / name
        return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
