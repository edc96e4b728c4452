"""Loading of scenarios: finds, decodes and checks a scenario file, or a scenario given as a Python object.

The check finds out whether every trial is possible.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import Any, TypeAlias

from pydantic import ValidationError

from compose.commands.dry_run import measure_step_profile_on_host
from compose.data_files.preparation import prepare_data
from compose.scenario_files.overrides import override_scenario_values
from compose.scenario_files.problems import ScenarioError, ScenarioProblem, SourcePosition
from compose.scenario_files.trial_checks import find_problems_needing_predictions, find_problems_per_trial
from compose.scenario_files.user_files.user_file_references import resolve_user_files
from compose.scenario_files.validation_messages import explain_validation_error
from compose.scenario_files.yaml_document import YamlDocument, parse_yaml, write_yaml
from services.learning.datasets.files import install_data_preparer
from services.scenario.commands.step_profile import install_step_profiler
from services.scenario.scenario import LABEL_PATTERN, Scenario, add_default_kinds
from services.schema.conflicts import KeyConflict
from services.schema.errors import UserError, os_error_cause
from services.schema.message_paths import path_for_messages

SHIPPED_FOLDER = Path(__file__).with_name("shipped").resolve()  # in a checkout a link to `scenarios/`
RUN_FOLDER_SCENARIO_STEMS = ("scenario", "resolved")  # of the copies of a scenario file in a run folder
MAX_FILE_BYTES = 1_000_000  # 300 times the largest shipped scenario; larger files take many seconds to parse

# Name of a shipped scenario, path of a scenario file, content of a scenario file as Python values, or loaded scenario.
ScenarioDeclaration: TypeAlias = str | Path | Mapping[str, Any] | Scenario


@dataclass(frozen=True)
class ScenarioText:
    """YAML text of a scenario, and its origin for messages."""

    text: str
    origin: str  # path of the file; for a scenario given as a Python object, the type of the object
    is_file: bool  # whether messages state lines
    folder: Path = field(default_factory=Path.cwd)  # to which paths of the user's files are relative

    @property
    def first_comment(self) -> str:
        """First comment of the text, which states the research question of the scenario.

        Editor hints are skipped. Scenarios given as Python objects have no comments.
        """
        comments = (line.lstrip("# ").strip() for line in self.text.splitlines() if line.startswith("#"))
        return next((text for text in comments if not text.startswith("yaml-language-server")), "")

    def parse(self) -> YamlDocument:
        """Parse the text into a document with the position of every key.

        Raises:
            ScenarioError: the text is not valid YAML, or has features that scenarios do not support.
        """
        document = parse_yaml(self.text, self.origin)
        if self.is_file:
            return document
        return YamlDocument(document.data, dict.fromkeys(document.positions, SourcePosition(self.origin)))


def load_scenario(
    scenario: ScenarioDeclaration, settings: Mapping[str, Any] | None = None, engine: str | None = None
) -> Scenario:
    """Load a scenario and check that each of its trials is possible.

    Args:
        scenario: name of a shipped scenario, path of a scenario file, dict with the content of a scenario file, or
            Scenario.
        settings: values that replace those of the scenario: dotted path -> YAML text, or a number, boolean, None, list
            or dict.
        engine: engine that will run the trials; by default the engine in the scenario.

    Raises:
        ScenarioError: the scenario is invalid; the message lists every problem.
        UserError: the file can't be read, or a setting has a wrong path.
    """
    return decode_scenario_text(read_scenario_text(scenario), settings, engine)


def read_scenario_text(scenario: ScenarioDeclaration) -> ScenarioText:
    """Return the YAML text of a scenario; for a dict or a Scenario, write the text.

    Raises:
        UserError: there is no such file or shipped scenario, or `scenario` has another type.
        ScenarioError: the dict has a value that YAML can't represent.
    """
    if isinstance(scenario, str):
        scenario = find_scenario(scenario)
    if isinstance(scenario, Path):
        if reason := _explain_not_a_file(scenario):
            raise UserError(f"{scenario}: {reason}")
        return ScenarioText(_read_text(scenario), path_for_messages(scenario), is_file=True, folder=scenario.parent)
    if isinstance(scenario, Scenario):
        return ScenarioText(write_yaml(scenario.encode(), "Scenario object"), "Scenario object", is_file=False)
    if isinstance(scenario, Mapping):
        return ScenarioText(write_yaml(dict(scenario), "scenario dict"), "scenario dict", is_file=False)
    raise UserError(
        f"a scenario can't be given as {type(scenario).__name__}; allowed are the name of a shipped scenario, the path "
        "of a .yaml file (str or Path), a dict with the content of such a file, and a Scenario"
    )


def decode_scenario_text(
    scenario_text: ScenarioText, settings: Mapping[str, Any] | None = None, engine: str | None = None
) -> Scenario:
    """Decode the text of a scenario and check that each of its trials is possible.

    Args:
        scenario_text: YAML text of the scenario.
        settings: as for `load_scenario`.
        engine: engine that will run the trials; by default the engine in the scenario.

    Raises:
        ScenarioError: the scenario is invalid; the message lists every problem.
        UserError: a setting has a wrong path.
    """
    declared_document = scenario_text.parse()
    install_data_preparer(prepare_data)
    install_step_profiler(measure_step_profile_on_host)
    overridden_document = override_scenario_values(declared_document, settings or {})
    document = resolve_user_files(overridden_document, scenario_text.folder)
    scenario = _decode_scenario(document)
    engine_name = engine or scenario.engine
    trials, problems = find_problems_per_trial(scenario, document, engine_name)
    if problems := [*_find_name_mismatch(scenario_text, declared_document), *problems]:
        raise ScenarioError(problems)
    if problems := find_problems_needing_predictions(trials, scenario, document, engine_name):
        raise ScenarioError(problems, later_checks_skipped=False)
    return scenario


def find_scenario(name: str) -> Path:
    """Return the path of a scenario file, given its path or the name of a shipped scenario.

    Args:
        name: path of a file that ends in .yaml or .yml, or name of a shipped scenario.

    Raises:
        UserError: there is no such file or shipped scenario; the message lists the shipped scenarios.
    """
    is_path = name.endswith((".yaml", ".yml"))
    path = Path(name) if is_path else SHIPPED_FOLDER / f"{name}.yaml"
    reason = _explain_not_a_file(path)
    if not reason:
        return path
    if is_path:
        raise UserError(f"{name}: {reason}")
    shipped_names = [file.stem for file in shipped_scenario_paths()]
    suggestion = "".join(f"; did you mean {match}?" for match in get_close_matches(name, shipped_names, n=1))
    raise UserError(
        f"there is no shipped scenario {name}; write the path of a .yaml file, or one of {', '.join(shipped_names)}"
        f"{suggestion}"
    )


def shipped_scenario_paths() -> list[Path]:
    """Return the files of all scenarios that are shipped with Ensayo."""
    return sorted(SHIPPED_FOLDER.glob("*.yaml"))


def read_first_comment(path: Path) -> str:
    """Return the first comment of a scenario file, which states its research question.

    Editor hints are skipped.
    """
    return read_scenario_text(path).first_comment


def _explain_not_a_file(path: Path) -> str:
    """Return why there is no regular file at `path`; the result is empty if there is one."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return "file not found"
    except OSError as error:  # such as a loop of symbolic links
        return f"the file can't be read: {os_error_cause(error)}"
    if S_ISDIR(mode):
        return "this is a folder; write the path of a scenario file in it"
    return "" if S_ISREG(mode) else "not a regular file; write the path of a scenario file"


def _read_text(path: Path) -> str:
    try:
        if (size := path.stat().st_size) > MAX_FILE_BYTES:
            raise UserError(f"{path}: the file has {size:,} bytes; a scenario has at most {MAX_FILE_BYTES:,}")
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path}: the file can't be read: {os_error_cause(error)}") from error
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise UserError(f"{path}:{line}: a character is not valid UTF-8; save the file as UTF-8 text") from error


def _find_name_mismatch(scenario_text: ScenarioText, document: YamlDocument) -> Iterator[ScenarioProblem]:
    """Yield a problem if the name in a scenario file is not that of the file.

    Results are stored under the name in the file, so those of an edited copy would lie among those of the original.
    """
    stem, name = Path(scenario_text.origin).stem, document.data.get("name")
    if scenario_text.is_file and name is not None and name != stem and stem not in RUN_FOLDER_SCENARIO_STEMS:
        corrections = [f"rename the file to {name}.yaml"]
        if re.fullmatch(LABEL_PATTERN, stem):
            corrections.insert(0, f"write name: {stem}")
        message = (
            f"{name!r} is not the name of the file ({stem!r}); both must be equal, because results are stored under "
            f"name; {', or '.join(corrections)}"
        )
        yield ScenarioProblem(document.find_position_of_key(("name",)), "name", message)


def _decode_scenario(scenario_yaml: YamlDocument) -> Scenario:
    """Decode a scenario document into a Scenario.

    Raise ScenarioError with all problems if the scenario is not valid.
    """
    try:
        return Scenario.decode(scenario_yaml.data)
    except ValidationError as error:
        conflicts = explain_validation_error(error, add_default_kinds(scenario_yaml.data))
        raise ScenarioError(_describe_key_conflict(conflict, scenario_yaml) for conflict in conflicts) from None


def _describe_key_conflict(key_conflict: KeyConflict, scenario_yaml: YamlDocument) -> ScenarioProblem:
    """Convert a conflict between scenario keys to a ScenarioProblem.

    The problem has the file and line of the key to change.
    """
    path = key_conflict.key_path
    return ScenarioProblem(scenario_yaml.find_position_of_key(path), ".".join(map(str, path)), key_conflict.message)
