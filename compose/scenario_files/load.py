"""Which scenario is meant, what does it say, and if it cannot run: why not?"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path

from pydantic import ValidationError

from compose.scenario_files.problems import BadScenario, Problem
from compose.scenario_files.settings import override
from compose.scenario_files.validation_messages import explain
from compose.scenario_files.yaml_document import Document, parse
from services.cluster.cluster import data_node_names
from services.cluster.events import frequency_conflicts
from services.plan import event_horizon_s
from services.scenario.scenario import Scenario, TrialChoice, TrialSpec
from services.scenario.sweep import SweepPoint
from services.schema.conflicts import Conflict
from services.schema.conflicts import KeyPath as Key
from services.schema.errors import UserError

SHIPPED = Path(__file__).parents[2] / "scenarios"


def load(path: Path, settings: Mapping[str, str] | None = None, engine: str | None = None) -> Scenario:
    """The scenario in the file at `path`, with some keys set to other values (dotted path -> YAML).

    Raises BadScenario with everything that is wrong; when it returns, every trial of the scenario makes sense, also
    under the engine that is asked for, here or in the scenario.
    """
    document = override(parse(_text(path), _shown(path)), settings or {})
    scenario = _decode(document)
    if problems := _swept_problems(scenario, document, engine or scenario.engine) or _crowds(scenario, document):
        raise BadScenario(problems)
    return scenario


def find(name: str) -> Path:
    """The file of a scenario: a path, or the bare name of a shipped one. Raises UserError with the names there are."""
    is_path = name.endswith((".yaml", ".yml"))
    path = Path(name) if is_path else SHIPPED / f"{name}.yaml"
    if path.is_file():
        return path
    if is_path:
        raise UserError(f"{name}: there is no such file")
    names = [file.stem for file in shipped()]
    close = "".join(f"; did you mean {each}?" for each in get_close_matches(name, names, n=1))
    raise UserError(f"there is no scenario {name}; shipped are {', '.join(names)}{close}")


def shipped() -> list[Path]:
    """The files of all scenarios that come with Ensayo."""
    return sorted(SHIPPED.glob("*.yaml"))


def question(path: Path) -> str:
    """The question that a scenario answers: the first comment that is not for the editor."""
    comments = (line.lstrip("# ").strip() for line in _text(path).splitlines() if line.startswith("#"))
    return next((text for text in comments if not text.startswith("yaml-language-server")), "")


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read: {error}") from error


def _shown(path: Path) -> str:
    """A path as messages show it: seen from here, when it is below."""
    full, here = path.resolve(), Path.cwd()
    return str(full.relative_to(here)) if full.is_relative_to(here) else str(path)


def _decode(document: Document) -> Scenario:
    try:
        return Scenario.decode(document.data)
    except ValidationError as error:
        raise BadScenario([_problem(found, document) for found in explain(error, document.data)]) from None


def _problem(found: Conflict, document: Document) -> Problem:
    return Problem(document.place(found.key_path), ".".join(map(str, found.key_path)), found.message)


def _swept_problems(scenario: Scenario, document: Document, engine: str | None) -> list[Problem]:
    """What is wrong with combinations of swept values; a problem of some of them names the first that has it."""
    choices = [choice for choice in scenario.trial_choices() if choice.repeat == 0]
    found: dict[Conflict, list[TrialChoice]] = defaultdict(list)
    for choice in choices:
        for conflict in _conflicts(scenario, choice, engine):
            found[conflict].append(choice)
    return [
        _swept_problem(conflict, scenario, document, {} if len(having) == len(choices) else having[0].sweep_point)
        for conflict, having in found.items()
    ]


def _conflicts(scenario: Scenario, choice: TrialChoice, engine: str | None) -> list[Conflict]:
    try:
        trial = scenario.trial(choice)
    except ValidationError as error:
        return list(explain(error, scenario.swept_document(choice)))
    return list(_timeless(trial)) if engine == "simulated" else []


def _timeless(trial: TrialSpec) -> Iterator[Conflict]:
    """Why virtual time does not pass while workers compute."""
    if free := trial.scenario.unpaced_workers:
        why = (
            f"engine simulated needs it: {free[0]} is not paced, and in virtual time mathematics takes none then; "
            "write throughput: 1000/s (a profile such as a100 needs it too), or take engine docker or local"
        )
        yield Conflict(("cluster", "worker", "throughput"), why)


def _crowds(scenario: Scenario, document: Document) -> list[Problem]:
    """Random events of which there would be too many, each with what its longest trial needs."""
    paths = [path for name, axis in scenario.sweep.items() for path in axis.target_paths(name)]
    if not any(what.at.random for what in scenario.events) and not any(path.startswith("events") for path in paths):
        return []
    found: dict[Key, tuple[float, Conflict]] = {}
    for choice in (choice for choice in scenario.trial_choices() if choice.repeat == 0):
        events, trial = Scenario.decode(scenario.swept_document(choice)).events, scenario.trial(choice)
        if not any(what.at.random for what in events):
            continue
        drawn_s, nodes = (
            event_horizon_s(trial),
            data_node_names(trial.scenario.cluster.workers, trial.strategy.phases().server_count),
        )
        for conflict in frequency_conflicts(events, drawn_s, nodes):
            found[conflict.key_path] = max(found.get(conflict.key_path, (0.0, conflict)), (drawn_s, conflict))
    conflicts = (Conflict(("events", *path), why) for _, (path, why) in found.values())
    return [_swept_problem(conflict, scenario, document, {}) for conflict in conflicts]


def _swept_problem(conflict: Conflict, scenario: Scenario, document: Document, setting: SweepPoint) -> Problem:
    """A problem of the combinations with `setting`; it stands where its key is swept, when it is."""
    key = ".".join(map(str, conflict.key_path))
    sweep = {name: axis.target_paths(name) for name, axis in scenario.sweep.items()}
    axes = [name for name, paths in sweep.items() if any(f"{key}.".startswith(f"{path}.") for path in paths)]
    values = " and ".join(f"{name} = {value}" for name, value in setting.items())
    place = document.place(("sweep", axes[0]) if axes else conflict.key_path)
    return Problem(place, key, f"{conflict.message} (with {values})" if values else conflict.message)
