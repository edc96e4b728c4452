"""Compliance rules of the workloads that recommend, recognise speech, classify graphs and play Go."""

from dataclasses import replace

from analysis.mlperf.reading.compliance import MllogKeyRule, WorkloadComplianceRules
from analysis.mlperf.rule_sets.own_keys import make_accuracy_key_rule, rules_for_keys_required_once
from analysis.mlperf.rule_sets.values import (
    LoggedValueRule,
    closed_range_rule,
    left_open_range_rule,
    make_allowed_values_rule,
    right_open_range_rule,
    rule_at_least,
    rule_greater_than,
)

DLRM_RULES = WorkloadComplianceRules(
    rules_for_keys_required_once(
        "global_batch_size opt_base_learning_rate opt_learning_rate_warmup_steps lr_decay_start_steps "
        "sgd_opt_base_learning_rate sgd_opt_learning_rate_decay_steps",
        sgd_opt_learning_rate_decay_poly_power=make_allowed_values_rule(2),
    )
    | make_accuracy_key_rule("epoch_num"),
    right_open_range_rule(0.8025, 1),
)
DLRM_DCNV2_RULES = WorkloadComplianceRules(
    rules_for_keys_required_once(
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
    | make_accuracy_key_rule("epoch_num"),
    closed_range_rule(0.80275, 1),
)
GRAPH_RULES = WorkloadComplianceRules(  # R-GAT: `gnn` in rounds 4.0 and 4.1, `rgat` since 5.0
    rules_for_keys_required_once(
        global_batch_size=rule_greater_than(0),
        opt_name=make_allowed_values_rule("adam"),
        opt_base_learning_rate=rule_at_least(0),
    )
    | make_accuracy_key_rule("epoch_num"),
    right_open_range_rule(0.72, 1),
)
RNNT_RULES = WorkloadComplianceRules(
    rules_for_keys_required_once(
        "global_batch_size opt_base_learning_rate opt_lamb_learning_rate_decay_poly_power "
        "opt_lamb_learning_rate_hold_epochs opt_learning_rate_warmup_epochs opt_lamb_beta_1 opt_lamb_beta_2 "
        "train_samples data_train_max_duration model_eval_ema_factor",
        opt_name=make_allowed_values_rule("lamb"),
        opt_lamb_epsilon=make_allowed_values_rule(1e-9),
        opt_weight_decay=make_allowed_values_rule(1e-3),
        opt_gradient_clip_norm=make_allowed_values_rule(1, float("inf")),
        opt_learning_rate_alt_decay_func=make_allowed_values_rule(True),  # noqa: FBT003 - a logged value
        opt_learning_rate_alt_warmup_func=make_allowed_values_rule(True),  # noqa: FBT003 - a logged value
        opt_lamb_learning_rate_min=make_allowed_values_rule(1e-5),
        eval_samples=make_allowed_values_rule(2703),
        data_train_num_buckets=LoggedValueRule("a whole number", lambda value: isinstance(value, int)),
        data_speed_perturbaton_min=make_allowed_values_rule(0.85),
        data_speed_perturbaton_max=make_allowed_values_rule(1.15),
        data_spec_augment_freq_n=make_allowed_values_rule(2),
        data_spec_augment_freq_min=make_allowed_values_rule(0),
        data_spec_augment_freq_max=make_allowed_values_rule(20),
        data_spec_augment_time_n=make_allowed_values_rule(10),
        data_spec_augment_time_min=make_allowed_values_rule(0),
        data_spec_augment_time_max=make_allowed_values_rule(0.03),
        eval_max_prediction_symbols=make_allowed_values_rule(300),
    )
    | make_accuracy_key_rule("epoch_num"),
    left_open_range_rule(0, 0.058),
)
RNNT_RULES_2_0 = replace(
    RNNT_RULES, own_rules={**RNNT_RULES.own_rules, "model_weights_initialization_scale": MllogKeyRule()}
)
MINIGO_RULES = WorkloadComplianceRules(
    rules_for_keys_required_once(
        "train_batch_size lr_boundaries lr_rates",
        min_selfplay_games_per_generation=make_allowed_values_rule(8192),
    )
    | {"actual_selfplay_games_per_generation": MllogKeyRule(rule_at_least(8192), occurrence="at least once")}
    | dict.fromkeys(("block_start", "block_stop", "train_samples", "eval_samples"), MllogKeyRule(occurrence="any"))
    | make_accuracy_key_rule("epoch_num"),
    right_open_range_rule(0.5, 1),
)
