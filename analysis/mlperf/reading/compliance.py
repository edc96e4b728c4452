"""Would MLCommons let this log count? What its compliance checker asks of the closed division, workload by workload.

Keys, allowed values and targets are those of mlcommons/logging (`mlperf_logging.compliance_checker`), rule set 4.1.0;
3D U-Net, which 4.1 no longer has, as in 4.0.0, and the workloads that were renamed for 5.0 as in 5.0.0. Lines are
judged in the order in which they stand. Repetitions of what may stand once pass where their values are equal.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, TypeAlias

from analysis.reading.mllog import LogEvent, NodeLog

INIT_MS = 30 * 60_000  # initialisation must take less


class Allowed(NamedTuple):
    """A rule for a value: in words for people, and as a test."""

    words: str
    test: Callable[[Any], bool]

    def judges(self, value: Any) -> bool:
        """Whether the value can be compared at all."""
        try:
            self.test(value)
        except (TypeError, KeyError):
            return False
        return True

    def holds(self, value: Any) -> bool:
        """Whether the value keeps the rule; what cannot be compared does not."""
        try:
            return bool(self.test(value))
        except (TypeError, KeyError):
            return False


ANYTHING = Allowed("anything", lambda _value: True)
TOLD = Allowed("not empty", lambda value: value != "")


def only(*values: float | str) -> Allowed:
    """One of these."""
    return Allowed(" or ".join(str(value) for value in values), lambda value: value in values)


def least(bound: float) -> Allowed:
    """The bound or more."""
    return Allowed(f"at least {bound:g}", lambda value: value >= bound)


def above(bound: float) -> Allowed:
    """More than the bound."""
    return Allowed(f"above {bound:g}", lambda value: value > bound)


@dataclass(frozen=True)
class Asked:
    """What is asked of the lines with one key."""

    value: Allowed = ANYTHING
    times: Literal["once", "at least once", "any"] = "once"
    placed_by: tuple[str, ...] = ()  # names of which one must stand in the metadata


Keys: TypeAlias = Mapping[str, Asked]

POSITION = ("epoch_num", "samples_count")
COMMON: Keys = {
    **dict.fromkeys(("submission_org", "submission_platform"), Asked(TOLD)),
    "submission_division": Asked(only("closed")),
    "submission_benchmark": Asked(),
    "cache_clear": Asked(times="at least once"),
    "init_start": Asked(times="at least once"),
    **dict.fromkeys(("init_stop", "run_start"), Asked()),
    "run_stop": Asked(placed_by=("status",)),  # which status is left to the target
    "block_start": Asked(times="any", placed_by=("epoch_count", "samples_count")),
    "block_stop": Asked(times="any", placed_by=("first_epoch_num", "samples_count")),
    **dict.fromkeys(("epoch_start", "epoch_stop"), Asked(times="any", placed_by=("epoch_num",))),
    **dict.fromkeys(("eval_start", "eval_stop"), Asked(times="any", placed_by=POSITION)),
    "eval_accuracy": Asked(times="at least once", placed_by=POSITION),
    **dict.fromkeys(("train_samples", "eval_samples"), Asked(TOLD)),
    "gradient_accumulation_steps": Asked(above(0)),
}
NEWER: Keys = {  # what 5.0.0 asks of all
    **{key: asked for key, asked in COMMON.items() if key not in ("submission_org", "submission_platform")},
    **dict.fromkeys(("epoch_start", "epoch_stop"), Asked(times="any", placed_by=POSITION)),
}
EITHER = (  # of each pair one at least
    ("block_start", "epoch_start"),
    ("block_stop", "epoch_stop"),
    ("eval_start", "block_start"),
    ("eval_stop", "block_stop"),
)
AFTER = {"init_stop": "init_start", "run_start": "init_stop", "run_stop": "run_start", "block_start": "run_start"}
NOT_AFTER = {"init_start": ("init_stop", "run_start"), "init_stop": ("run_start",)}


def _once(names: str, **values: Allowed) -> dict[str, Asked]:
    """Keys that must stand there once, some of them with a rule for their value."""
    return {name: Asked() for name in names.split()} | {name: Asked(rule) for name, rule in values.items()}


def _evaluated_by(name: str) -> dict[str, Asked]:
    return {"eval_accuracy": Asked(times="at least once", placed_by=(name,))}


def _accuracies(log: NodeLog) -> list[Any]:
    return [event.value for event in log.events_with_key("eval_accuracy")]


def _image_scores(log: NodeLog) -> list[Any]:
    """FID and CLIP are computed apart from each other; what was measured at one position is one evaluation."""
    found: dict[float | str, dict[str, Any]] = {}
    for event in log.events_with_key("eval_accuracy"):
        if "metric" in event.metadata:
            position = event.metadata.get("samples_count")
            place = position if isinstance(position, int | float) else f"line {event.line_number}"
            found.setdefault(place, {})[str(event.metadata["metric"])] = event.value
    return list(found.values())


@dataclass(frozen=True)
class Workload:
    """What is asked of a run of one workload."""

    own: Keys  # beyond the common ones, and in their place
    target: Allowed  # what one evaluation at least must keep
    evaluations: Callable[[NodeLog], list[Any]] = _accuracies
    whole: Allowed = ANYTHING  # what every evaluation must keep
    fewest: int = 1  # evaluations
    common: Keys = field(default_factory=lambda: COMMON)

    @property
    def keys(self) -> Keys:
        """All that is asked."""
        return {**self.common, **self.own}

    def reached(self, log: NodeLog) -> bool:
        """Whether the run got where it had to."""
        return any(self.target.holds(value) for value in self.evaluations(log))

    def doubts(self, log: NodeLog) -> Iterator[str]:
        """Every reason not to let the log count; none when it does."""
        by_key: dict[str, list[LogEvent]] = {}
        for event in log.events:
            by_key.setdefault(event.key, []).append(event)
        for name, asked in self.keys.items():
            yield from _against(name, asked, by_key.get(name, []))
        yield from (f"has neither {one} nor {other}" for one, other in EITHER if not {one, other} & by_key.keys())
        yield from _blocks(by_key.get("block_start", []))
        yield from _disorder(log.events)
        yield from self._short_of_target(log)

    def _short_of_target(self, log: NodeLog) -> Iterator[str]:
        found = self.evaluations(log)
        if len(found) < self.fewest:
            yield f"has {len(found) or 'no'} evaluations, needed are {self.fewest}"
        yield from ("has an evaluation that is not " + self.whole.words for each in found if not self.whole.holds(each))
        if not all(self.target.judges(each) for each in found):
            yield "has an eval_accuracy that is no number"
        if not self.reached(log):
            yield f"has no eval_accuracy {self.target.words}"


def _against(name: str, asked: Asked, events: Sequence[LogEvent]) -> Iterator[str]:
    values = [event.value for event in events]
    if not events and asked.times != "any":
        yield f"has no {name}"
    if asked.times == "once" and values.count(values[0] if values else None) != len(values):
        yield f"has {len(values)} {name} that differ"
    for event in events[:1] if name.startswith("submission_") else events:
        if not asked.value.holds(event.value):
            yield f"has {name} {event.value!r}, allowed is {asked.value.words}"
        if asked.placed_by and not set(asked.placed_by) & event.metadata.keys():
            yield f"has {name} without {' or '.join(asked.placed_by)}"


def _blocks(starts: Sequence[LogEvent]) -> Iterator[str]:
    for event in starts:
        told = event.metadata
        epochs = "epoch_count" not in told or ("first_epoch_num" in told and above(0).holds(told["epoch_count"]))
        samples = "samples_count" not in told or least(0).holds(told["samples_count"])
        if not epochs or not samples:
            yield "has a block_start whose first_epoch_num, epoch_count or samples_count is missing or too small"


def _disorder(events: Sequence[LogEvent]) -> Iterator[str]:
    """What stands before or after the wrong line, and an initialisation that took too long."""
    seen: dict[str, float] = {}  # key -> its earliest time so far
    for event in events:
        if event.key in AFTER and AFTER[event.key] not in seen:
            yield f"has {event.key} before {AFTER[event.key]}"
        yield from (f"has {event.key} after {key}" for key in NOT_AFTER.get(event.key, ()) if key in seen)
        if event.key == "init_stop" and not event.time_ms - seen.get("init_start", -math.inf) < _init_limit(seen):
            yield f"initialises for {INIT_MS // 60_000} minutes or more, or before it tells its division"
        seen[event.key] = min(event.time_ms, seen.get(event.key, math.inf))


def _init_limit(seen: Mapping[str, float]) -> float:
    """The division decides on the limit; a log that has not told it yet has none to keep."""
    return INIT_MS if "submission_division" in seen else 0


def _within(low: float, high: float) -> Allowed:
    return Allowed(f"from {low:g} to below {high:g}", lambda value: low <= value < high)


def _between(low: float, high: float) -> Allowed:
    return Allowed(f"from {low:g} to {high:g}", lambda value: low <= value <= high)


def _down_to(high: float, low: float) -> Allowed:
    return Allowed(f"of {high:g} or less, above {low:g}", lambda value: low < value <= high)


FID, CLIP = _between(0, 90), _between(0.15, 1)  # both of one evaluation of images
DETECTION = Workload(
    _once(
        "global_batch_size",
        opt_name=only("adam"),
        opt_base_learning_rate=least(0),
        opt_weight_decay=only(0),
        opt_learning_rate_warmup_epochs=least(0),
        opt_learning_rate_warmup_factor=least(0),
    )
    | _evaluated_by("epoch_num"),
    _within(0.34, 1),
)
GRAPHS = Workload(
    _once("", global_batch_size=above(0), opt_name=only("adam"), opt_base_learning_rate=least(0))
    | _evaluated_by("epoch_num"),
    _within(0.72, 1),
)
WORKLOADS = {  # by what logs call them
    "bert": Workload(
        _once(
            "global_batch_size opt_base_learning_rate opt_lamb_epsilon opt_learning_rate_training_steps "
            "opt_learning_rate_warmup_steps num_warmup_steps start_warmup_step opt_lamb_beta_1 opt_lamb_beta_2 "
            "opt_lamb_weight_decay_rate"
        )
        | _evaluated_by("epoch_num"),
        _within(0.72, 1),
    ),
    "ssd": DETECTION,
    "retinanet": replace(DETECTION, common=NEWER),
    "gnn": GRAPHS,
    "rgat": replace(GRAPHS, common=NEWER),
    "llama2_70b_lora": Workload(
        _once(
            "global_batch_size opt_base_learning_rate opt_learning_rate_training_steps opt_gradient_clip_norm "
            "opt_adamw_weight_decay gradient_accumulation_steps lora_alpha",
            lora_rank=only(16),
        )
        | _evaluated_by("samples_count"),
        _down_to(0.925, 0),
    ),
    "stable_diffusion": Workload(
        _once(
            "",
            opt_name=only("adamw"),
            opt_adamw_beta_1=only(0.9),
            opt_adamw_beta_2=only(0.999),
            opt_adamw_epsilon=only(1e-8),
            opt_adamw_weight_decay=only(0.01),
            opt_base_learning_rate=least(0),
            opt_learning_rate_warmup_steps=least(0),
        )
        | {"global_batch_size": Asked(least(0), times="at least once")},
        Allowed(
            f"with FID {FID.words} and CLIP {CLIP.words}",
            lambda scores: FID.test(scores["FID"]) and CLIP.test(scores["CLIP"]),
        ),
        evaluations=_image_scores,
        whole=Allowed("both FID and CLIP at one samples_count", lambda scores: {"FID", "CLIP"} <= scores.keys()),
        fewest=2,
    ),
    "gpt3": Workload(
        _once(
            "global_batch_size opt_end_learning_rate opt_learning_rate_decay_steps opt_learning_rate_warmup_steps "
            "eval_samples",
            max_sequence_length=only(2048),
            opt_name=only("adam"),
            opt_base_learning_rate=only(2e-5, 3e-5),
            opt_learning_rate_decay_schedule=only("cosine with linear warmup"),
            opt_adam_beta_1=only(0.9),
            opt_adam_beta_2=only(0.95),
            opt_adam_epsilon=only(1e-8),
            opt_gradient_clip_norm=only(1.0),
            gradient_accumulation_steps=above(0),
            init_checkpoint_step=above(0),
        )
        | _evaluated_by("epoch_num"),
        _down_to(2.69, 2.6),
    ),
    "dlrm_dcnv2": Workload(
        _once(
            "global_batch_size opt_base_learning_rate",
            opt_name=only("adagrad"),
            opt_adagrad_learning_rate_decay=only(0),
            opt_weight_decay=only(0),
            opt_adagrad_initial_accumulator_value=only(0),
            opt_adagrad_epsilon=only(1e-8),
            opt_learning_rate_warmup_steps=only(0),
            opt_learning_rate_decay_start_step=only(0),
            opt_learning_rate_decay_steps=only(0),
            eval_samples=only(89137319),
        )
        | _evaluated_by("epoch_num"),
        _between(0.80275, 1),
    ),
    "unet3d": Workload(
        _once(
            "global_batch_size opt_name opt_base_learning_rate opt_learning_rate_decay_boundary_epochs "
            "opt_learning_rate_decay_factor opt_weight_decay seed opt_momentum oversampling training_input_shape "
            "validation_input_shape validation_overlap",
            submission_status=only("cloud", "onprem", "preview", "research"),
            opt_learning_rate_warmup_epochs=least(0),
            train_samples=only(168),
            eval_samples=only(42),
        )
        | _evaluated_by("epoch_num"),
        least(0.908),
    ),
}


def asked_of(log: NodeLog) -> Workload | None:
    """What is asked of the workload that the log names first; None where it names none, or one that is not known."""
    named = log.events_with_key("submission_benchmark")
    return WORKLOADS.get(str(named[0].value)) if named else None
