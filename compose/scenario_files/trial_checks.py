"""Checks of all trials of a scenario, and the problems that they find, with positions in the scenario file."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, cast

from pydantic import ValidationError

from compose.engines import ENGINE_CLASSES, choose_engine
from compose.scenario_files.checkpoint_checks import find_unusable_initial_checkpoints
from compose.scenario_files.container_checks import find_files_unreadable_in_containers
from compose.scenario_files.prediction_checks import find_events_after_training, find_too_frequent_random_events
from compose.scenario_files.problems import ScenarioProblem
from compose.scenario_files.slow_links import find_slow_links
from compose.scenario_files.swept_trial import SweptTrial, decode_swept_trial
from compose.scenario_files.validation_messages import explain_validation_error
from compose.scenario_files.yaml_document import YamlDocument
from services.scenario.run_settings import EngineName
from services.scenario.scenario import Scenario, TrialSpec
from services.scenario.sweep import SweepPoint
from services.schema.conflicts import KeyConflict

if TYPE_CHECKING:
    from services.scenario.trial_identity import TrialIdentity


def find_problems_per_trial(
    scenario: Scenario, scenario_yaml: YamlDocument, engine_name: str | None
) -> tuple[list[SweptTrial], list[ScenarioProblem]]:
    """Decode and check the trial of every strategy and combination of swept values.

    If only some combinations have a problem, the message of the problem names the first such combination.

    Args:
        scenario: decoded scenario.
        scenario_yaml: document of the scenario, which has the positions of keys.
        engine_name: engine that will run the trials; None if neither user nor scenario names one.

    Returns:
        The valid trials and all problems. Repeats are left out, because they differ only in the seed.
    """
    trials: list[SweptTrial] = []
    identities = [identity for identity in scenario.all_trial_identities() if identity.repeat == 0]
    identities_by_conflict: dict[KeyConflict, list[TrialIdentity]] = defaultdict(list)
    for identity in identities:
        conflicts: Iterable[KeyConflict]
        try:
            trials.append(decode_swept_trial(scenario, identity))
            conflicts = _find_missing_throughput(trials[-1].trial, engine_name)
        except ValidationError as error:
            conflicts = explain_validation_error(error, scenario.document_with_swept_values(identity))
        for conflict in conflicts:
            identities_by_conflict[conflict].append(identity)
    problems = [
        _describe_sweep_conflict(
            conflict, scenario, scenario_yaml, {} if len(affected) == len(identities) else affected[0].sweep_point
        )
        for conflict, affected in identities_by_conflict.items()
    ]
    return trials, problems


def find_problems_needing_predictions(
    trials: Sequence[SweptTrial], scenario: Scenario, scenario_yaml: YamlDocument, engine_name: str | None
) -> list[ScenarioProblem]:
    """Return the problems that only predictions for the trials of a valid scenario show.

    Args:
        trials: all trials of the scenario, without repeats.
        scenario: decoded scenario.
        scenario_yaml: document of the scenario, which has the positions of keys.
        engine_name: engine that will run the trials; None if neither user nor scenario names one.
    """
    resolve_engine_name = partial(_resolve_engine_name, engine_name)
    conflicts: list[tuple[KeyConflict, SweepPoint]] = [
        *((conflict, {}) for conflict in find_too_frequent_random_events(trials)),
        *((conflict, {}) for conflict in find_events_after_training(trials, resolve_engine_name)),
        *find_slow_links(trials, resolve_engine_name),
        *find_unusable_initial_checkpoints(trials, resolve_engine_name),
        *find_files_unreadable_in_containers(trials, resolve_engine_name),
    ]
    return [
        _describe_sweep_conflict(conflict, scenario, scenario_yaml, sweep_point) for conflict, sweep_point in conflicts
    ]


def _resolve_engine_name(engine_name: str | None) -> EngineName:
    """Return the name of the engine that runs the trials, by default that of this host.

    A named engine need not be installed, so that its scenarios can be checked on any host.

    Raises:
        UserError: no engine has this name.
    """
    if engine_name in ENGINE_CLASSES:
        return cast("EngineName", engine_name)
    return choose_engine(engine_name).engine.name


def _find_missing_throughput(trial: TrialSpec, engine_name: str | None) -> Iterator[KeyConflict]:
    """Yield a conflict between scenario keys if a worker declares no throughput.

    The engine `simulated` needs a throughput for every worker.
    """
    if engine_name == "simulated" and (unpaced_workers := trial.scenario.workers_without_throughput):
        message = (
            f"engine simulated needs a throughput for every worker, but {unpaced_workers[0]} has none, so its compute "
            "would take no virtual time; write for example throughput: 1000/s (beside a profile such as a100, too) or "
            "profile: h100 and utilisation: 0.4, or use engine docker or local"
        )
        yield KeyConflict(("cluster", "worker", "throughput"), message)


def _describe_sweep_conflict(
    key_conflict: KeyConflict, scenario: Scenario, scenario_yaml: YamlDocument, swept_values: SweepPoint
) -> ScenarioProblem:
    """Convert a conflict between scenario keys to a problem that names the swept values.

    The swept values are those that cause the conflict. The problem's position is that of the key, or that of the
    sweep's axis if the key is swept.
    """
    key = ".".join(map(str, key_conflict.key_path))
    paths_by_axis = {name: axis.swept_key_paths(name) for name, axis in scenario.sweep.items()}
    axes = [name for name, paths in paths_by_axis.items() if any(f"{key}.".startswith(f"{path}.") for path in paths)]
    values = " and ".join(f"{name} = {value}" for name, value in swept_values.items())
    position = scenario_yaml.find_position_of_key(("sweep", axes[0]) if axes else key_conflict.key_path)
    return ScenarioProblem(position, key, f"{key_conflict.message} (with {values})" if values else key_conflict.message)
