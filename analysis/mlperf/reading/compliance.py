"""Check of MLPerf Training logs against the compliance rules of their round.

The rules are those of MLCommons' checker; `analysis.mlperf.rule_sets` has the rules of each round. Lines are checked in
the order of the log. A key that may appear once may be repeated with equal values.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

from analysis.mlperf.rule_sets.values import ANY_VALUE, LoggedValueRule
from analysis.reading.logs.mllog import MllogEvent, NodeLog

INIT_LIMIT_MS = 30 * 60_000  # initialisation must take less time


@dataclass(frozen=True)
class MllogKeyRule:
    """Rule for all log lines with the same key: allowed values, number of lines, metadata and order."""

    value_rule: LoggedValueRule = ANY_VALUE
    occurrence: Literal["once", "at least once", "any"] = "once"
    metadata_names: tuple[str, ...] = ()  # the metadata of a line must have at least one of these names
    metadata_rule: LoggedValueRule = ANY_VALUE  # for the metadata of a line as a whole
    predecessor: str = ""  # key that must appear in an earlier line; empty for none


KeyRules: TypeAlias = Mapping[str, MllogKeyRule]


class EarlierValuesRule(NamedTuple):
    """Rule for the value of a log line that depends on the values of other keys in earlier lines."""

    key: str
    description: str
    predicate: Callable[[Any, Mapping[str, Any]], bool]  # of the value, and of the last earlier value of each key

    def accepts(self, logged_value: Any, earlier_values: Mapping[str, Any]) -> bool:
        """Return whether a value satisfies the rule, given the last earlier value of each key."""
        return LoggedValueRule(self.description, lambda value: self.predicate(value, earlier_values)).accepts(
            logged_value
        )


REQUIRED_PAIRS = (  # those of all workloads
    ("block_start", "epoch_start"),
    ("block_stop", "epoch_stop"),
    ("eval_start", "block_start"),
    ("eval_stop", "block_stop"),
)
FORBIDDEN_PREDECESSORS = {"init_start": ("init_stop", "run_start"), "init_stop": ("run_start",)}


def read_logged_accuracies(log: NodeLog) -> list[Any]:
    """Return the value of each `eval_accuracy` in a log."""
    return [event.value for event in log.events_with_key("eval_accuracy")]


@dataclass(frozen=True)
class WorkloadComplianceRules:
    """Compliance rules for the log of one run of a workload."""

    own_rules: KeyRules  # in addition to the common rules; equal keys replace them
    target: LoggedValueRule  # at least one evaluation must satisfy it
    read_evaluations: Callable[[NodeLog], list[Any]] = read_logged_accuracies
    evaluation_rule: LoggedValueRule = ANY_VALUE  # every evaluation must satisfy it
    min_evaluations: int = 1
    required_pairs: tuple[tuple[str, str], ...] = ()  # a log must have at least one key of each pair
    rules_by_optimiser: Mapping[str, KeyRules] = field(default_factory=dict)  # additional rules, by `opt_name`
    earlier_values_rules: tuple[EarlierValuesRule, ...] = ()
    initialised_tensors: tuple[str, ...] = ()  # sorted; each needs one `weights_initialization`; empty: not checked
    common_rules: KeyRules = field(default_factory=dict)  # those of the round
    round_name: str = ""  # round of MLPerf Training that these rules are from, for example "4.1"

    def key_rules(self, optimiser: Any = None) -> KeyRules:
        """Return the rules for all keys of the log of a run with an optimiser."""
        return {**self.common_rules, **self.own_rules, **self.rules_by_optimiser.get(str(optimiser), {})}

    def has_reached_target(self, log: NodeLog) -> bool:
        """Return whether at least one evaluation in a log reaches the target of the workload."""
        return any(self.target.accepts(value) for value in self.read_evaluations(log))

    def find_violations(self, log: NodeLog) -> Iterator[str]:
        """Yield a text such as "has no run_stop" for each violation of the compliance rules in a log."""
        by_key: dict[str, list[MllogEvent]] = {}
        for event in log.events:
            by_key.setdefault(event.key, []).append(event)
        key_rules = self.key_rules(next((event.value for event in by_key.get("opt_name", [])), None))
        for key, key_rule in key_rules.items():
            yield from _find_key_violations(key, key_rule, by_key.get(key, []))
        pairs = (*REQUIRED_PAIRS, *self.required_pairs)
        yield from (f"has neither {a} nor {b}" for a, b in pairs if not {a, b} & by_key.keys())
        yield from _find_event_order_violations(log.events, key_rules)
        yield from self._find_earlier_values_violations(log.events)
        yield from self._find_tensor_violations(by_key.get("weights_initialization", []))
        yield from self._find_evaluation_violations(log)

    def _find_earlier_values_violations(self, log_events: Sequence[MllogEvent]) -> Iterator[str]:
        earlier_values: dict[str, Any] = {}
        for event in log_events:
            for rule in self.earlier_values_rules:
                if rule.key == event.key and not rule.accepts(event.value, earlier_values):
                    yield f"has {event.key} {event.value!r}, allowed is {rule.description}"
            earlier_values[event.key] = event.value

    def _find_tensor_violations(self, initialisation_events: Sequence[MllogEvent]) -> Iterator[str]:
        if not self.initialised_tensors:
            return
        logged = sorted(str(event.metadata.get("tensor")) for event in initialisation_events)
        if logged != list(self.initialised_tensors):
            missing = next(iter(sorted(set(self.initialised_tensors) - set(logged))), "")
            unexpected = "an unknown or repeated tensor"
            yield f"has weights_initialization {f'without {missing}' if missing else f'of {unexpected}'}"

    def _find_evaluation_violations(self, log: NodeLog) -> Iterator[str]:
        evaluations = self.read_evaluations(log)
        if len(evaluations) < self.min_evaluations:
            yield f"has {len(evaluations) or 'no'} evaluations, needed are {self.min_evaluations}"
        for each in evaluations:
            if not self.evaluation_rule.accepts(each):
                yield f"has an evaluation that is not {self.evaluation_rule.description}"
        if not all(self.target.is_applicable_to(each) for each in evaluations):
            yield "has an eval_accuracy that is no number"
        if not self.has_reached_target(log):
            yield f"has no eval_accuracy {self.target.description}"


def _find_key_violations(key: str, key_rule: MllogKeyRule, key_events: Sequence[MllogEvent]) -> Iterator[str]:
    values = [event.value for event in key_events]
    if not key_events and key_rule.occurrence != "any":
        yield f"has no {key}"
    if key_rule.occurrence == "once" and values.count(values[0] if values else None) != len(values):
        yield f"has {len(values)} {key} that differ"
    for event in key_events[:1] if key.startswith("submission_") else key_events:
        if not key_rule.value_rule.accepts(event.value):
            yield f"has {key} {event.value!r}, allowed is {key_rule.value_rule.description}"
        if key_rule.metadata_names and not set(key_rule.metadata_names) & event.metadata.keys():
            yield f"has {key} without {' or '.join(key_rule.metadata_names)}"
        if not key_rule.metadata_rule.accepts(event.metadata):
            yield f"has a {key} whose metadata are not {key_rule.metadata_rule.description}"


def _find_event_order_violations(log_events: Sequence[MllogEvent], key_rules: KeyRules) -> Iterator[str]:
    """Yield a text such as "has run_stop before run_start" for each log line in a wrong order.

    An initialisation that takes too long also gives a text.
    """
    first_time_ms: dict[str, float] = {}  # key -> earliest time in the lines read so far
    for event in log_events:
        required = key_rules[event.key].predecessor if event.key in key_rules else ""
        if required and required not in first_time_ms:
            yield f"has {event.key} before {required}"
        forbidden = FORBIDDEN_PREDECESSORS.get(event.key, ())
        yield from (f"has {event.key} after {key}" for key in forbidden if key in first_time_ms)
        init_ms = event.time_ms - first_time_ms.get("init_start", -math.inf)
        if event.key == "init_stop" and not init_ms < _find_init_time_limit_ms(first_time_ms):
            yield f"initialises for {INIT_LIMIT_MS // 60_000} minutes or more, or before it logs submission_division"
        first_time_ms[event.key] = min(event.time_ms, first_time_ms.get(event.key, math.inf))


def _find_init_time_limit_ms(first_time_ms_by_log_key: Mapping[str, float]) -> float:
    """Return the time limit of initialisation in milliseconds.

    Return 0 if the log has not yet named the MLPerf division.
    """
    return INIT_LIMIT_MS if "submission_division" in first_time_ms_by_log_key else 0
