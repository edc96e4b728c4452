"""Functions that make the rules for the keys of one workload."""

from analysis.mlperf.reading.compliance import MllogKeyRule
from analysis.mlperf.rule_sets.values import LoggedValueRule


def rules_for_keys_required_once(key_names: str = "", **value_rules: LoggedValueRule) -> dict[str, MllogKeyRule]:
    """Return compliance rules for log keys that must appear once.

    Any value is allowed for `key_names`; `value_rules` gives the rule for the value of each other key.
    """
    any_value = {key: MllogKeyRule() for key in key_names.split()}
    return any_value | {key: MllogKeyRule(rule) for key, rule in value_rules.items()}


def make_accuracy_key_rule(required_metadata_key: str) -> dict[str, MllogKeyRule]:
    """Return the rule that each `eval_accuracy` has a position of this name in its metadata."""
    return {"eval_accuracy": MllogKeyRule(occurrence="at least once", metadata_names=(required_metadata_key,))}
