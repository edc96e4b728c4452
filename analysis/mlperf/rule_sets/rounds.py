"""Rule set of each round of MLPerf Training, and the choice of a rule set for a folder of logs.

A log does not name its round. The rule set is therefore chosen by the user, by the name of the folder or one of the
folders above it (`training_results_v4.1`), or by the workloads that have logs.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from analysis.mlperf.reading.compliance import KeyRules, MllogKeyRule, WorkloadComplianceRules
from analysis.mlperf.rule_sets import images, other, texts
from analysis.mlperf.rule_sets.common import COMMON_RULES_BY_ROUND
from analysis.reading.logs.mllog import NodeLog
from services.schema.errors import UserError

DEFAULT_ROUND = "4.1"  # round of the shipped results
TENSORS_PATH = Path(__file__).resolve().parent / "initialised_tensors.json"
TENSOR_ROUNDS = ("2.0", "2.1")  # in these rounds, the logs list each initialised tensor
TENSOR_RULES: KeyRules = {
    "weights_initialization": MllogKeyRule(occurrence="at least once", metadata_names=("tensor",))
}
ROUNDS_WITHOUT_RULES = ("0.5", "0.6", "0.7", "1.0", "1.1", "6.0", "6.1")
ROUND_FOLDER_PATTERN = re.compile(r"(?i)(?:^v?|(?:train|result|submi|mlperf|round).*?(?<!\d))(\d\.\d)(?![\d.])")

_ROUND_2_1 = {
    "bert": texts.BERT_RULES_TO_3_0,
    "dlrm": other.DLRM_RULES,
    "maskrcnn": images.MASK_RCNN_RULES,
    "minigo": other.MINIGO_RULES,
    "resnet": images.RESNET_RULES,
    "rnnt": other.RNNT_RULES_2_0,
    "ssd": images.DETECTION_RULES,
    "unet3d": images.UNET_RULES,
}
_ROUND_3_0 = {
    **{name: _ROUND_2_1[name] for name in ("bert", "maskrcnn", "resnet", "ssd", "unet3d")},
    "rnnt": other.RNNT_RULES,
    "dlrm_dcnv2": other.DLRM_DCNV2_RULES,
    "gpt3": texts.GPT3_RULES,
}
_ROUND_3_1 = _ROUND_3_0 | {
    "bert": texts.BERT_RULES,
    "stable_diffusion": images.make_stable_diffusion_rules("step_num"),
}
_ROUND_4_1 = {
    **{name: _ROUND_3_1[name] for name in ("bert", "dlrm_dcnv2", "gpt3", "ssd")},
    "gnn": other.GRAPH_RULES,
    "llama2_70b_lora": texts.LLAMA2_LORA_RULES,
    "stable_diffusion": images.make_stable_diffusion_rules("samples_count"),
}
_ROUND_5_0 = {
    **{name: _ROUND_4_1[name] for name in ("bert", "dlrm_dcnv2", "llama2_70b_lora", "stable_diffusion")},
    "llama31_405b": texts.LLAMA31_405B_RULES_5_0,
    "retinanet": images.DETECTION_RULES,
    "rgat": other.GRAPH_RULES,
}
WORKLOADS_BY_ROUND: dict[str, dict[str, WorkloadComplianceRules]] = {
    "2.0": _ROUND_2_1,
    "2.1": _ROUND_2_1,
    "3.0": _ROUND_3_0,
    "3.1": _ROUND_3_1,
    "4.0": _ROUND_4_1 | {"resnet": images.RESNET_RULES, "unet3d": images.UNET_RULES},
    "4.1": _ROUND_4_1,
    "5.0": _ROUND_5_0,
    "5.1": {
        **{name: _ROUND_5_0[name] for name in ("dlrm_dcnv2", "llama2_70b_lora", "retinanet", "rgat")},
        "flux1": images.FLUX_RULES,
        "llama31_405b": texts.LLAMA31_405B_RULES_5_1,
        "llama31_8b": texts.LLAMA31_8B_RULES,
    },
}


@dataclass(frozen=True)
class RuleSet:
    """Compliance rules that logs are checked against, and the reason for their choice."""

    workloads: Mapping[str, WorkloadComplianceRules]  # by `submission_benchmark`
    description: str  # rules and reason, for the report
    is_checked: bool = True  # whether logs are checked at all, and not only scored
    round_name: str = ""  # the round whose workloads are the only allowed ones; empty: workloads are not restricted

    def name_rules_of(self, benchmark: str) -> str:
        """Return the round whose rules a workload is checked with; "published" without a check, empty if none."""
        rules = self.workloads.get(benchmark)
        return rules.round_name if rules else "" if self.is_checked else "published"

    def find_workload_rules(self, log: NodeLog) -> WorkloadComplianceRules | None:
        """Return the compliance rules of the workload that a log names in `submission_benchmark`.

        Return None if the rule set has no such workload.
        """
        benchmarks = log.events_with_key("submission_benchmark")
        return self.workloads.get(str(benchmarks[0].value)) if benchmarks else None

    def find_workload_violations(self, log: NodeLog) -> Iterator[str]:
        """Yield a text if the workload of a log belongs to other rounds only."""
        for event in log.events_with_key("submission_benchmark")[:1]:
            rounds = [name for name, workloads in WORKLOADS_BY_ROUND.items() if str(event.value) in workloads]
            if self.round_name and rounds and self.round_name not in rounds:
                yield f"has submission_benchmark {event.value!r}, which only these rounds have: {', '.join(rounds)}"


def _make_workloads(round_name: str) -> dict[str, WorkloadComplianceRules]:
    """Return the rules of all workloads of a round, with the rules that the workloads of the round share."""
    has_tensors = round_name in TENSOR_ROUNDS
    tensors: dict[str, list[str]] = json.loads(TENSORS_PATH.read_text(encoding="utf-8")) if has_tensors else {}
    return {
        benchmark: replace(
            rules,
            own_rules={**rules.own_rules, **(TENSOR_RULES if benchmark in tensors else {})},
            initialised_tensors=tuple(tensors.get(benchmark, ())),
            common_rules=COMMON_RULES_BY_ROUND[round_name],
            round_name=round_name,
        )
        for benchmark, rules in WORKLOADS_BY_ROUND[round_name].items()
    }


RULE_SETS = {
    name: RuleSet(_make_workloads(name), f"rules of round {name}", round_name=name) for name in WORKLOADS_BY_ROUND
}
PUBLISHED_RULE_SET = RuleSet({}, "results taken as published, without a check of their logs", is_checked=False)


def _rounds_by_distance() -> list[str]:
    """Return the names of all rounds, the default round and the rounds nearest to it first."""
    names = list(RULE_SETS)
    return sorted(names, key=lambda name: abs(names.index(name) - names.index(DEFAULT_ROUND)))


NEAREST_RULE_SET = RuleSet(
    {
        benchmark: rules
        for name in reversed(_rounds_by_distance())
        for benchmark, rules in RULE_SETS[name].workloads.items()
    },
    f"rules of the round nearest to {DEFAULT_ROUND} that has the workload",
)


def parse_round(round_text: str) -> str:
    """Return the name of the round that a user wrote, for example "2.1" for "v2.1.0".

    Raises:
        UserError: Ensayo has no rules of this round.
    """
    name = round_text.strip().lower().removeprefix("v").removesuffix(".0")
    name = name if "." in name else f"{name}.0"
    if name not in RULE_SETS:
        raise UserError(f"--rules {round_text}: unknown round; allowed are {', '.join(RULE_SETS)}")
    return name


def detect_rule_set(logs_root: Path, benchmarks: Iterable[str]) -> RuleSet:
    """Return the rule set for a folder of logs, by the names of its folders or else by its workloads.

    Args:
        logs_root: folder of a round, or of a submitter below it.
        benchmarks: names of the workloads' folders.
    """
    path = logs_root.resolve()
    for folder_name in (path.name, *(parent.name for parent in path.parents)):
        match = ROUND_FOLDER_PATTERN.search(folder_name)
        if match and match[1] in (*RULE_SETS, *ROUNDS_WITHOUT_RULES):
            return _rule_set_of_named_round(match[1], folder_name)
    names = sorted(set(benchmarks))
    for round_name in _rounds_by_distance():
        if RULE_SETS[round_name].workloads.keys() >= set(names):
            reason = f"detected from the workloads {', '.join(names)}"
            return replace(RULE_SETS[round_name], description=f"rules of round {round_name}, {reason}", round_name="")
    return NEAREST_RULE_SET


def _rule_set_of_named_round(round_name: str, folder_name: str) -> RuleSet:
    """Return the rule set of the round that a folder is named after; without rules if the round is unknown."""
    if round_name in RULE_SETS:
        description = f"rules of round {round_name}, detected from the folder name {folder_name}"
        return replace(RULE_SETS[round_name], description=description)
    return RuleSet(
        {},
        f"no rules known for round {round_name} (from folder name {folder_name}): only start, end, status and damaged "
        "lines are checked; choose rules with --rules ROUND",
    )


def choose_rule_set(round_text: str | None, *, trusts_published: bool) -> RuleSet | None:
    """Return the rule set that a user chose; None if it is to be detected.

    Raises:
        UserError: Ensayo has no rules of this round, or the user chose a round and no check.
    """
    if round_text is not None and trusts_published:
        raise UserError("--rules and --trust-published: keep one of them; a trusted result is not checked by any rules")
    if trusts_published:
        return PUBLISHED_RULE_SET
    if round_text is None:
        return None
    chosen = RULE_SETS[parse_round(round_text)]
    return replace(chosen, description=f"{chosen.description}, chosen with --rules")
