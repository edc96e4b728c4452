"""Compliance rules for logs of MLPerf Training's closed division, one set per workload.

The rules are those of MLCommons' checker. Keys, allowed values and targets are those of mlcommons/logging
(`mlperf_logging.compliance_checker`), rule set 4.1.0. 3D U-Net, which 4.1 no longer has, follows 4.0.0. Workloads
renamed for 5.0 (RetinaNet, R-GAT) follow 5.0.0. Lines are checked in the order of the log. A key that may appear once
may be repeated with equal values.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, TypeAlias

from analysis.reading.mllog import MllogEvent, NodeLog

INIT_LIMIT_MS = 30 * 60_000  # initialisation must take less time


class LoggedValueRule(NamedTuple):
    """Rule for the value of a log line: a predicate, and a text that describes the allowed values.

    The text is used in messages.
    """

    description: str
    predicate: Callable[[Any], bool]

    def is_applicable_to(self, logged_value: Any) -> bool:
        """Return whether the predicate of this rule can be computed for a value.

        A numeric bound, for example, needs a number.
        """
        try:
            self.predicate(logged_value)
        except (TypeError, KeyError):
            return False
        return True

    def accepts(self, logged_value: Any) -> bool:
        """Return whether a value satisfies the rule.

        Return False if the predicate cannot be computed for the value.
        """
        try:
            return bool(self.predicate(logged_value))
        except (TypeError, KeyError):
            return False


ANY_VALUE = LoggedValueRule("anything", lambda _value: True)
NOT_EMPTY = LoggedValueRule("not empty", lambda value: value != "")


def make_allowed_values_rule(*allowed_values: float | str) -> LoggedValueRule:
    """Return the rule that a value must be one of `allowed_values`."""
    return LoggedValueRule(" or ".join(str(value) for value in allowed_values), lambda value: value in allowed_values)


def rule_at_least(lower_bound: float) -> LoggedValueRule:
    """Return the rule that a value must be at least `lower_bound`."""
    return LoggedValueRule(f"at least {lower_bound:g}", lambda value: value >= lower_bound)


def rule_greater_than(lower_bound: float) -> LoggedValueRule:
    """Return the rule that a value must be greater than `lower_bound`."""
    return LoggedValueRule(f"above {lower_bound:g}", lambda value: value > lower_bound)


@dataclass(frozen=True)
class MllogKeyRule:
    """Rule for all log lines with the same key: allowed values, number of lines and required metadata."""

    value_rule: LoggedValueRule = ANY_VALUE
    occurrence: Literal["once", "at least once", "any"] = "once"
    metadata_names: tuple[str, ...] = ()  # the metadata of a line must have at least one of these names


KeyRules: TypeAlias = Mapping[str, MllogKeyRule]

POSITION_METADATA = ("epoch_num", "samples_count")
COMMON_RULES_4_1: KeyRules = {
    **dict.fromkeys(("submission_org", "submission_platform"), MllogKeyRule(NOT_EMPTY)),
    "submission_division": MllogKeyRule(make_allowed_values_rule("closed")),
    "submission_benchmark": MllogKeyRule(),
    "cache_clear": MllogKeyRule(occurrence="at least once"),
    "init_start": MllogKeyRule(occurrence="at least once"),
    **dict.fromkeys(("init_stop", "run_start"), MllogKeyRule()),
    "run_stop": MllogKeyRule(metadata_names=("status",)),  # the target rule checks the status itself
    "block_start": MllogKeyRule(occurrence="any", metadata_names=("epoch_count", "samples_count")),
    "block_stop": MllogKeyRule(occurrence="any", metadata_names=("first_epoch_num", "samples_count")),
    **dict.fromkeys(("epoch_start", "epoch_stop"), MllogKeyRule(occurrence="any", metadata_names=("epoch_num",))),
    **dict.fromkeys(("eval_start", "eval_stop"), MllogKeyRule(occurrence="any", metadata_names=POSITION_METADATA)),
    "eval_accuracy": MllogKeyRule(occurrence="at least once", metadata_names=POSITION_METADATA),
    **dict.fromkeys(("train_samples", "eval_samples"), MllogKeyRule(NOT_EMPTY)),
    "gradient_accumulation_steps": MllogKeyRule(rule_greater_than(0)),
}
COMMON_RULES_5_0: KeyRules = {  # rule set 5.0.0, all workloads
    **{
        key: key_rule
        for key, key_rule in COMMON_RULES_4_1.items()
        if key not in ("submission_org", "submission_platform")
    },
    **dict.fromkeys(("epoch_start", "epoch_stop"), MllogKeyRule(occurrence="any", metadata_names=POSITION_METADATA)),
}
REQUIRED_PAIRS = (  # a log must have at least one key of each pair
    ("block_start", "epoch_start"),
    ("block_stop", "epoch_stop"),
    ("eval_start", "block_start"),
    ("eval_stop", "block_stop"),
)
PREDECESSOR = {"init_stop": "init_start", "run_start": "init_stop", "run_stop": "run_start", "block_start": "run_start"}
FORBIDDEN_PREDECESSORS = {"init_start": ("init_stop", "run_start"), "init_stop": ("run_start",)}


def _rules_for_keys_required_once(key_names: str, **value_rules: LoggedValueRule) -> dict[str, MllogKeyRule]:
    """Return compliance rules for log keys that must appear once.

    Any value is allowed for `key_names`; `value_rules` gives the rule for the value of each other key.
    """
    any_value = {key: MllogKeyRule() for key in key_names.split()}
    return any_value | {key: MllogKeyRule(rule) for key, rule in value_rules.items()}


def _make_accuracy_key_rule(required_metadata_key: str) -> dict[str, MllogKeyRule]:
    return {"eval_accuracy": MllogKeyRule(occurrence="at least once", metadata_names=(required_metadata_key,))}


def _logged_accuracies(log: NodeLog) -> list[Any]:
    return [event.value for event in log.events_with_key("eval_accuracy")]


def _fid_and_clip_evaluations(log: NodeLog) -> list[Any]:
    """Return the FID and CLIP scores that were logged for an image model.

    Scores are grouped by the number of samples at which they were logged.
    """
    scores_by_position: dict[float | str, dict[str, Any]] = {}
    for event in log.events_with_key("eval_accuracy"):
        if "metric" in event.metadata:
            samples_count = event.metadata.get("samples_count")
            position = samples_count if isinstance(samples_count, int | float) else f"line {event.line_number}"
            scores_by_position.setdefault(position, {})[str(event.metadata["metric"])] = event.value
    return list(scores_by_position.values())


@dataclass(frozen=True)
class WorkloadComplianceRules:
    """Compliance rules for the log of one run of a workload."""

    own_rules: KeyRules  # in addition to the common rules; equal keys replace them
    target: LoggedValueRule  # at least one evaluation must satisfy it
    read_evaluations: Callable[[NodeLog], list[Any]] = _logged_accuracies
    evaluation_rule: LoggedValueRule = ANY_VALUE  # every evaluation must satisfy it
    min_evaluations: int = 1
    common_rules: KeyRules = field(default_factory=lambda: COMMON_RULES_4_1)

    @property
    def rules_by_log_key(self) -> KeyRules:
        """Rules for all keys of the log: the common rules and the rules of the workload."""
        return {**self.common_rules, **self.own_rules}

    def has_reached_target(self, log: NodeLog) -> bool:
        """Return whether at least one evaluation in a log reaches the target of the workload."""
        return any(self.target.accepts(value) for value in self.read_evaluations(log))

    def find_violations(self, log: NodeLog) -> Iterator[str]:
        """Yield a text such as "has no run_stop" for each violation of the compliance rules in a log."""
        by_key: dict[str, list[MllogEvent]] = {}
        for event in log.events:
            by_key.setdefault(event.key, []).append(event)
        for key, key_rule in self.rules_by_log_key.items():
            yield from _find_key_violations(key, key_rule, by_key.get(key, []))
        yield from (f"has neither {a} nor {b}" for a, b in REQUIRED_PAIRS if not {a, b} & by_key.keys())
        yield from _find_block_start_violations(by_key.get("block_start", []))
        yield from _find_event_order_violations(log.events)
        yield from self._find_evaluation_violations(log)

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


def _find_block_start_violations(block_start_events: Sequence[MllogEvent]) -> Iterator[str]:
    for event in block_start_events:
        metadata = event.metadata
        epochs_valid = "epoch_count" not in metadata or (
            "first_epoch_num" in metadata and rule_greater_than(0).accepts(metadata["epoch_count"])
        )
        samples_valid = "samples_count" not in metadata or rule_at_least(0).accepts(metadata["samples_count"])
        if not epochs_valid or not samples_valid:
            yield "has a block_start whose first_epoch_num, epoch_count or samples_count is missing or too small"


def _find_event_order_violations(log_events: Sequence[MllogEvent]) -> Iterator[str]:
    """Yield a text such as "has run_stop before run_start" for each log line in a wrong order.

    An initialisation that takes too long also gives a text.
    """
    first_time_ms: dict[str, float] = {}  # key -> earliest time in the lines read so far
    for event in log_events:
        required = PREDECESSOR.get(event.key)
        if required is not None and required not in first_time_ms:
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


def _right_open_range_rule(low: float, high: float) -> LoggedValueRule:
    return LoggedValueRule(f"from {low:g} to below {high:g}", lambda value: low <= value < high)


def _closed_range_rule(low: float, high: float) -> LoggedValueRule:
    return LoggedValueRule(f"from {low:g} to {high:g}", lambda value: low <= value <= high)


def _left_open_range_rule(high: float, low: float) -> LoggedValueRule:
    return LoggedValueRule(f"of {high:g} or less, above {low:g}", lambda value: low < value <= high)


FID_RULE, CLIP_RULE = _closed_range_rule(0, 90), _closed_range_rule(0.15, 1)  # an evaluation of images needs both
DETECTION_RULES = WorkloadComplianceRules(
    _rules_for_keys_required_once(
        "global_batch_size",
        opt_name=make_allowed_values_rule("adam"),
        opt_base_learning_rate=rule_at_least(0),
        opt_weight_decay=make_allowed_values_rule(0),
        opt_learning_rate_warmup_epochs=rule_at_least(0),
        opt_learning_rate_warmup_factor=rule_at_least(0),
    )
    | _make_accuracy_key_rule("epoch_num"),
    _right_open_range_rule(0.34, 1),
)
GRAPH_RULES = WorkloadComplianceRules(
    _rules_for_keys_required_once(
        "",
        global_batch_size=rule_greater_than(0),
        opt_name=make_allowed_values_rule("adam"),
        opt_base_learning_rate=rule_at_least(0),
    )
    | _make_accuracy_key_rule("epoch_num"),
    _right_open_range_rule(0.72, 1),
)
WORKLOAD_RULES = {  # by submission_benchmark
    "bert": WorkloadComplianceRules(
        _rules_for_keys_required_once(
            "global_batch_size opt_base_learning_rate opt_lamb_epsilon opt_learning_rate_training_steps "
            "opt_learning_rate_warmup_steps num_warmup_steps start_warmup_step opt_lamb_beta_1 opt_lamb_beta_2 "
            "opt_lamb_weight_decay_rate"
        )
        | _make_accuracy_key_rule("epoch_num"),
        _right_open_range_rule(0.72, 1),
    ),
    "ssd": DETECTION_RULES,
    "retinanet": replace(DETECTION_RULES, common_rules=COMMON_RULES_5_0),
    "gnn": GRAPH_RULES,
    "rgat": replace(GRAPH_RULES, common_rules=COMMON_RULES_5_0),
    "llama2_70b_lora": WorkloadComplianceRules(
        _rules_for_keys_required_once(
            "global_batch_size opt_base_learning_rate opt_learning_rate_training_steps opt_gradient_clip_norm "
            "opt_adamw_weight_decay gradient_accumulation_steps lora_alpha",
            lora_rank=make_allowed_values_rule(16),
        )
        | _make_accuracy_key_rule("samples_count"),
        _left_open_range_rule(0.925, 0),
    ),
    "stable_diffusion": WorkloadComplianceRules(
        _rules_for_keys_required_once(
            "",
            opt_name=make_allowed_values_rule("adamw"),
            opt_adamw_beta_1=make_allowed_values_rule(0.9),
            opt_adamw_beta_2=make_allowed_values_rule(0.999),
            opt_adamw_epsilon=make_allowed_values_rule(1e-8),
            opt_adamw_weight_decay=make_allowed_values_rule(0.01),
            opt_base_learning_rate=rule_at_least(0),
            opt_learning_rate_warmup_steps=rule_at_least(0),
        )
        | {"global_batch_size": MllogKeyRule(rule_at_least(0), occurrence="at least once")},
        LoggedValueRule(
            f"with FID {FID_RULE.description} and CLIP {CLIP_RULE.description}",
            lambda scores: FID_RULE.predicate(scores["FID"]) and CLIP_RULE.predicate(scores["CLIP"]),
        ),
        read_evaluations=_fid_and_clip_evaluations,
        evaluation_rule=LoggedValueRule(
            "both FID and CLIP at one samples_count", lambda scores: {"FID", "CLIP"} <= scores.keys()
        ),
        min_evaluations=2,
    ),
    "gpt3": WorkloadComplianceRules(
        _rules_for_keys_required_once(
            "global_batch_size opt_end_learning_rate opt_learning_rate_decay_steps opt_learning_rate_warmup_steps "
            "eval_samples",
            max_sequence_length=make_allowed_values_rule(2048),
            opt_name=make_allowed_values_rule("adam"),
            opt_base_learning_rate=make_allowed_values_rule(2e-5, 3e-5),
            opt_learning_rate_decay_schedule=make_allowed_values_rule("cosine with linear warmup"),
            opt_adam_beta_1=make_allowed_values_rule(0.9),
            opt_adam_beta_2=make_allowed_values_rule(0.95),
            opt_adam_epsilon=make_allowed_values_rule(1e-8),
            opt_gradient_clip_norm=make_allowed_values_rule(1.0),
            gradient_accumulation_steps=rule_greater_than(0),
            init_checkpoint_step=rule_greater_than(0),
        )
        | _make_accuracy_key_rule("epoch_num"),
        _left_open_range_rule(2.69, 2.6),
    ),
    "dlrm_dcnv2": WorkloadComplianceRules(
        _rules_for_keys_required_once(
            "global_batch_size opt_base_learning_rate",
            opt_name=make_allowed_values_rule("adagrad"),
            opt_adagrad_learning_rate_decay=make_allowed_values_rule(0),
            opt_weight_decay=make_allowed_values_rule(0),
            opt_adagrad_initial_accumulator_value=make_allowed_values_rule(0),
            opt_adagrad_epsilon=make_allowed_values_rule(1e-8),
            opt_learning_rate_warmup_steps=make_allowed_values_rule(0),
            opt_learning_rate_decay_start_step=make_allowed_values_rule(0),
            opt_learning_rate_decay_steps=make_allowed_values_rule(0),
            eval_samples=make_allowed_values_rule(89137319),
        )
        | _make_accuracy_key_rule("epoch_num"),
        _closed_range_rule(0.80275, 1),
    ),
    "unet3d": WorkloadComplianceRules(
        _rules_for_keys_required_once(
            "global_batch_size opt_name opt_base_learning_rate opt_learning_rate_decay_boundary_epochs "
            "opt_learning_rate_decay_factor opt_weight_decay seed opt_momentum oversampling training_input_shape "
            "validation_input_shape validation_overlap",
            submission_status=make_allowed_values_rule("cloud", "onprem", "preview", "research"),
            opt_learning_rate_warmup_epochs=rule_at_least(0),
            train_samples=make_allowed_values_rule(168),
            eval_samples=make_allowed_values_rule(42),
        )
        | _make_accuracy_key_rule("epoch_num"),
        rule_at_least(0.908),
    ),
}


def find_workload_rules(log: NodeLog) -> WorkloadComplianceRules | None:
    """Return the compliance rules of the workload that a log names.

    The log names the workload in `submission_benchmark`. Return None if no such rules exist.
    """
    benchmarks = log.events_with_key("submission_benchmark")
    return WORKLOAD_RULES.get(str(benchmarks[0].value)) if benchmarks else None
