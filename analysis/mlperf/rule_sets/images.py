"""Compliance rules of the workloads that detect, classify, segment and generate images."""

from functools import partial
from typing import Any

from analysis.mlperf.reading.compliance import EarlierValuesRule, MllogKeyRule, WorkloadComplianceRules
from analysis.mlperf.rule_sets.own_keys import make_accuracy_key_rule, rules_for_keys_required_once
from analysis.mlperf.rule_sets.values import (
    LoggedValueRule,
    closed_range_rule,
    is_whole,
    left_open_range_rule,
    make_allowed_values_rule,
    multiple_of_rule,
    power_of_two_times_rule,
    right_open_range_rule,
    rule_at_least,
    rule_greater_than,
)
from analysis.reading.logs.mllog import NodeLog

DETECTION_RULES = WorkloadComplianceRules(  # RetinaNet: `ssd` in rounds 2.0 to 4.1, `retinanet` since 5.0
    rules_for_keys_required_once(
        "global_batch_size",
        opt_name=make_allowed_values_rule("adam"),
        opt_base_learning_rate=rule_at_least(0),
        opt_weight_decay=make_allowed_values_rule(0),
        opt_learning_rate_warmup_epochs=rule_at_least(0),
        opt_learning_rate_warmup_factor=rule_at_least(0),
    )
    | make_accuracy_key_rule("epoch_num"),
    right_open_range_rule(0.34, 1),
)
RESNET_RULES = WorkloadComplianceRules(
    rules_for_keys_required_once(
        global_batch_size=rule_greater_than(0), opt_name=make_allowed_values_rule("sgd", "lars")
    )
    | make_accuracy_key_rule("epoch_num"),
    right_open_range_rule(0.759, 1),
    rules_by_optimiser={
        "lars": rules_for_keys_required_once(
            "lars_opt_base_learning_rate lars_opt_learning_rate_decay_steps lars_opt_learning_rate_warmup_epochs "
            "lars_opt_momentum",
            lars_opt_end_learning_rate=make_allowed_values_rule(0.0001),
            lars_opt_learning_rate_decay_poly_power=make_allowed_values_rule(2),
            lars_epsilon=make_allowed_values_rule(0),
            lars_opt_weight_decay=power_of_two_times_rule(0.0001),
        ),
        "sgd": rules_for_keys_required_once(
            "sgd_opt_learning_rate_decay_poly_power sgd_opt_learning_rate_decay_steps sgd_opt_momentum model_bn_span "
            "opt_learning_rate_warmup_epochs",
            sgd_opt_base_learning_rate=multiple_of_rule(0.001),
            sgd_opt_end_learning_rate=make_allowed_values_rule(0.0001),
            sgd_opt_weight_decay=power_of_two_times_rule(0.0001),
        ),
    },
)
BOX_TARGET, MASK_TARGET = right_open_range_rule(0.377, 1), right_open_range_rule(0.339, 1)
MASK_RCNN_RULES = WorkloadComplianceRules(
    rules_for_keys_required_once(
        "opt_base_learning_rate",
        global_batch_size=rule_greater_than(0),
        opt_learning_rate_warmup_steps=rule_at_least(0),
        opt_learning_rate_warmup_factor=rule_greater_than(0),
        num_image_candidates=multiple_of_rule(1000),
        opt_learning_rate_decay_factor=make_allowed_values_rule(0.1),
        opt_learning_rate_decay_steps=LoggedValueRule("two steps", lambda steps: len(steps) == 2),  # noqa: PLR2004
        min_image_size=rule_at_least(0),
        max_image_size=rule_at_least(0),
    )
    | make_accuracy_key_rule("epoch_num"),
    LoggedValueRule(
        f"with BBOX {BOX_TARGET.description} and SEGM {MASK_TARGET.description}",
        lambda scores: BOX_TARGET.predicate(scores["BBOX"]) and MASK_TARGET.predicate(scores["SEGM"]),
    ),
    evaluation_rule=LoggedValueRule("both BBOX and SEGM", lambda scores: "BBOX" in scores and "SEGM" in scores),
    earlier_values_rules=(
        EarlierValuesRule(
            "opt_base_learning_rate",
            "a multiple of 0.02, or a fraction of it for a global_batch_size below 16",
            lambda rate, earlier: (
                is_whole(rate / 0.02) or (earlier["global_batch_size"] < 16 and is_whole(0.02 / rate))  # noqa: PLR2004
            ),
        ),
    ),
)
UNET_RULES = WorkloadComplianceRules(
    rules_for_keys_required_once(
        "global_batch_size opt_name opt_base_learning_rate opt_learning_rate_decay_boundary_epochs "
        "opt_learning_rate_decay_factor opt_weight_decay seed opt_momentum oversampling training_input_shape "
        "validation_input_shape validation_overlap",
        opt_learning_rate_warmup_epochs=rule_at_least(0),
        train_samples=make_allowed_values_rule(168),
        eval_samples=make_allowed_values_rule(42),
    )
    | make_accuracy_key_rule("epoch_num"),
    rule_at_least(0.908),
)
FID_RULE, CLIP_RULE = closed_range_rule(0, 90), closed_range_rule(0.15, 1)  # an evaluation of images needs both


def make_stable_diffusion_rules(position_name: str) -> WorkloadComplianceRules:
    """Return the rules of Stable Diffusion.

    `position_name` is the name in the metadata by which the two scores of one evaluation are joined.
    """
    return WorkloadComplianceRules(
        rules_for_keys_required_once(
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
        read_evaluations=partial(_fid_and_clip_evaluations, position_name=position_name),
        evaluation_rule=LoggedValueRule(
            f"both FID and CLIP at one {position_name}", lambda scores: {"FID", "CLIP"} <= scores.keys()
        ),
        min_evaluations=2,
    )


def _fid_and_clip_evaluations(log: NodeLog, position_name: str) -> list[Any]:
    """Return the FID and CLIP scores that were logged for an image model.

    Scores are grouped by the position at which they were logged.
    """
    scores_by_position: dict[float | str, dict[str, Any]] = {}
    for event in log.events_with_key("eval_accuracy"):
        if "metric" in event.metadata:
            logged_position = event.metadata.get(position_name)
            position = logged_position if isinstance(logged_position, int | float) else f"line {event.line_number}"
            scores_by_position.setdefault(position, {})[str(event.metadata["metric"])] = event.value
    return list(scores_by_position.values())


FLUX_RULES = WorkloadComplianceRules(
    rules_for_keys_required_once(
        evaluation_frequency=make_allowed_values_rule(262144),
        opt_name=make_allowed_values_rule("adamw"),
        opt_adamw_beta_1=make_allowed_values_rule(0.9),
        opt_adamw_beta_2=make_allowed_values_rule(0.95),
        opt_adamw_epsilon=make_allowed_values_rule(1e-8),
        opt_adamw_weight_decay=make_allowed_values_rule(0.1),
        opt_base_learning_rate=rule_at_least(0),
        opt_learning_rate_warmup_steps=rule_at_least(0),
        opt_gradient_clip_norm=make_allowed_values_rule(1.0),
    )
    | {"global_batch_size": MllogKeyRule(rule_at_least(0), occurrence="at least once")}
    | make_accuracy_key_rule("samples_count"),
    left_open_range_rule(0, 0.586),
)
