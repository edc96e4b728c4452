"""Rules for the log keys that every workload of a round logs."""

from collections.abc import Mapping
from typing import Any

from analysis.mlperf.reading.compliance import KeyRules, MllogKeyRule
from analysis.mlperf.rule_sets.values import (
    NOT_EMPTY,
    LoggedValueRule,
    make_allowed_values_rule,
    rule_at_least,
    rule_greater_than,
)

SUBMITTER_RULES = dict.fromkeys(("submission_org", "submission_platform"), MllogKeyRule(NOT_EMPTY))
STATUS_RULES = {"submission_status": MllogKeyRule(make_allowed_values_rule("cloud", "onprem", "preview", "research"))}


def make_common_rules(*positions: str, epoch_positions: tuple[str, ...] = ("epoch_num",)) -> dict[str, MllogKeyRule]:
    """Return the rules for the keys that all rounds share.

    Args:
        positions: names in the metadata that may replace the number of the epoch, for example "samples_count".
        epoch_positions: names in the metadata of which the start and the end of an epoch need one.
    """
    evaluation_positions = ("epoch_num", *positions)
    return {
        "submission_division": MllogKeyRule(make_allowed_values_rule("closed")),
        "submission_benchmark": MllogKeyRule(),
        "cache_clear": MllogKeyRule(occurrence="at least once"),
        "init_start": MllogKeyRule(occurrence="at least once"),
        "init_stop": MllogKeyRule(predecessor="init_start"),
        "run_start": MllogKeyRule(predecessor="init_stop"),
        # The target rule checks the status.
        "run_stop": MllogKeyRule(metadata_names=("status",), predecessor="run_start"),
        "block_start": MllogKeyRule(
            occurrence="any",
            metadata_names=("epoch_count", *positions),
            metadata_rule=_block_start_rule(positions),
            predecessor="run_start",
        ),
        "block_stop": MllogKeyRule(occurrence="any", metadata_names=("first_epoch_num", *positions)),
        **dict.fromkeys(("epoch_start", "epoch_stop"), MllogKeyRule(occurrence="any", metadata_names=epoch_positions)),
        **dict.fromkeys(
            ("eval_start", "eval_stop"), MllogKeyRule(occurrence="any", metadata_names=evaluation_positions)
        ),
        "eval_accuracy": MllogKeyRule(occurrence="at least once", metadata_names=evaluation_positions),
        **dict.fromkeys(("train_samples", "eval_samples"), MllogKeyRule(NOT_EMPTY)),
        "gradient_accumulation_steps": MllogKeyRule(rule_greater_than(0)),
    }


def _block_start_rule(positions: tuple[str, ...]) -> LoggedValueRule:
    """Return the rule for the metadata of a block of epochs or samples."""

    def is_valid(metadata: Mapping[str, Any]) -> bool:
        has_valid_epochs = "epoch_count" not in metadata or (
            "first_epoch_num" in metadata and rule_greater_than(0).accepts(metadata["epoch_count"])
        )
        return has_valid_epochs and all(
            rule_at_least(0).accepts(metadata[name]) for name in positions if name in metadata
        )

    return LoggedValueRule("first_epoch_num with an epoch_count above 0, or a position of at least 0", is_valid)


SAMPLES_OR_EPOCHS = ("epoch_num", "samples_count")
COMMON_RULES_BY_ROUND: dict[str, KeyRules] = {
    **dict.fromkeys(("2.0", "2.1", "3.0"), make_common_rules() | SUBMITTER_RULES | STATUS_RULES),
    "3.1": make_common_rules("step_num") | SUBMITTER_RULES | STATUS_RULES,
    "4.0": make_common_rules("samples_count") | SUBMITTER_RULES | STATUS_RULES,
    "4.1": make_common_rules("samples_count") | SUBMITTER_RULES,
    "5.0": make_common_rules("samples_count", epoch_positions=SAMPLES_OR_EPOCHS),
    "5.1": make_common_rules("samples_count", epoch_positions=SAMPLES_OR_EPOCHS) | SUBMITTER_RULES,
}
