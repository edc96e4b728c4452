"""Compliance rules of the workloads that train language models."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from analysis.mlperf.reading.compliance import EarlierValuesRule, MllogKeyRule, WorkloadComplianceRules
from analysis.mlperf.rule_sets.own_keys import make_accuracy_key_rule, rules_for_keys_required_once
from analysis.mlperf.rule_sets.values import (
    left_open_range_rule,
    make_allowed_values_rule,
    right_open_range_rule,
    rule_greater_than,
)

REFERENCE_BATCH_405B = 1152  # global batch to which the learning rate and the lengths of Llama 3.1 405B refer
WARMUP_STEPS_405B, STEPS_405B, STEPS_8B = 8000, 1_200_000, 1_200_000


BERT_KEYS = rules_for_keys_required_once(
    "global_batch_size opt_base_learning_rate opt_learning_rate_training_steps opt_learning_rate_warmup_steps "
    "num_warmup_steps start_warmup_step opt_lamb_beta_1 opt_lamb_beta_2 opt_lamb_weight_decay_rate"
) | make_accuracy_key_rule("epoch_num")
BERT_TARGET = right_open_range_rule(0.72, 1)
# In rounds 2.0 to 3.0, published logs have either of the keys.
BERT_RULES_TO_3_0 = WorkloadComplianceRules(
    BERT_KEYS, BERT_TARGET, required_pairs=(("opt_epsilon", "opt_lamb_epsilon"),)
)
BERT_RULES = WorkloadComplianceRules(BERT_KEYS | {"opt_lamb_epsilon": MllogKeyRule()}, BERT_TARGET)
GPT3_RULES = WorkloadComplianceRules(
    rules_for_keys_required_once(
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
    | make_accuracy_key_rule("epoch_num"),
    left_open_range_rule(2.6, 2.69),
)
LLAMA2_LORA_RULES = WorkloadComplianceRules(
    rules_for_keys_required_once(
        "global_batch_size opt_base_learning_rate opt_learning_rate_training_steps opt_gradient_clip_norm "
        "opt_adamw_weight_decay gradient_accumulation_steps lora_alpha",
        lora_rank=make_allowed_values_rule(16),
    )
    | make_accuracy_key_rule("samples_count"),
    left_open_range_rule(0, 0.925),
)
LLAMA31_KEYS = rules_for_keys_required_once(
    "global_batch_size opt_end_learning_rate opt_learning_rate_warmup_steps opt_learning_rate_decay_steps",
    max_sequence_length=make_allowed_values_rule(8192),
    opt_name=make_allowed_values_rule("adamw"),
    opt_learning_rate_decay_schedule=make_allowed_values_rule("cosine with linear warmup"),
    opt_adamw_beta_1=make_allowed_values_rule(0.9),
    opt_adamw_beta_2=make_allowed_values_rule(0.95),
    opt_adamw_epsilon=make_allowed_values_rule(1e-5),
    opt_adamw_weight_decay=make_allowed_values_rule(0.1),
    opt_gradient_clip_norm=make_allowed_values_rule(1.0),
    gradient_accumulation_steps=rule_greater_than(0),
) | make_accuracy_key_rule("samples_count")


def _scaled_steps_405b(steps: int, earlier_values: Mapping[str, Any]) -> int:
    """Return as many steps of the logged global batch as process the samples of `steps` reference batches."""
    scaled_steps: int = math.ceil(steps * REFERENCE_BATCH_405B / earlier_values["global_batch_size"])
    return scaled_steps


LLAMA31_405B_RULES_5_0 = WorkloadComplianceRules(
    LLAMA31_KEYS
    | rules_for_keys_required_once(
        "opt_base_learning_rate",
        eval_samples=make_allowed_values_rule(5760),
        init_checkpoint_step=make_allowed_values_rule(0),
    ),
    left_open_range_rule(0, 5.6),
    earlier_values_rules=(
        EarlierValuesRule(
            "opt_base_learning_rate",
            f"8e-5 x global_batch_size / {REFERENCE_BATCH_405B}",
            lambda rate, earlier: rate * REFERENCE_BATCH_405B == earlier["global_batch_size"] * 8e-5,
        ),
    ),
)
LLAMA31_405B_RULES_5_1 = replace(
    LLAMA31_405B_RULES_5_0,
    earlier_values_rules=(
        *LLAMA31_405B_RULES_5_0.earlier_values_rules,
        EarlierValuesRule(
            "opt_learning_rate_warmup_steps",
            "any number after a global_batch_size above 0",
            lambda _steps, earlier: math.isfinite(_scaled_steps_405b(WARMUP_STEPS_405B, earlier)),
        ),
        EarlierValuesRule(
            "opt_learning_rate_decay_steps",
            f"the steps of {STEPS_405B - WARMUP_STEPS_405B:,} batches of {REFERENCE_BATCH_405B}, after "
            "opt_learning_rate_warmup_steps",
            lambda steps, earlier: (
                "opt_learning_rate_warmup_steps" in earlier
                and steps == _scaled_steps_405b(STEPS_405B, earlier) - _scaled_steps_405b(WARMUP_STEPS_405B, earlier)
            ),
        ),
    ),
)
LLAMA31_8B_RULES = WorkloadComplianceRules(
    LLAMA31_KEYS
    | rules_for_keys_required_once(
        "opt_base_learning_rate",
        eval_samples=make_allowed_values_rule(1024),
        max_steps=make_allowed_values_rule(STEPS_8B),
    ),
    left_open_range_rule(0, 3.3),
    earlier_values_rules=(
        EarlierValuesRule(
            "opt_learning_rate_decay_steps",
            f"{STEPS_8B:,} - opt_learning_rate_warmup_steps",
            lambda steps, earlier: steps == STEPS_8B - earlier["opt_learning_rate_warmup_steps"],
        ),
    ),
)
