"""Reasons why predictions for a user's command are not known."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from services.plan import CommandPlan, Plan
from services.plan.commands.command_prediction import payload_bytes_sent

NO_SPEED = "no compute speed is declared, so the command runs as fast as this host"


def unknown_step_reason(plan: Plan) -> str:
    """Return why the step time of a trial is not known before it runs; empty if it is predicted."""
    if not isinstance(plan, CommandPlan):
        return ""
    if plan.step_profile is None:
        return plan.no_step_profile_reason
    return "" if all(node.throughput for node in plan.node_plans_of_role("worker")) else NO_SPEED


def unknown_bytes_reason(plan: Plan) -> str:
    """Return why the bytes that a step of a trial sends are not known before it runs; empty if they are predicted."""
    if not isinstance(plan, CommandPlan) or plan.bytes_per_step:
        return ""
    if plan.step_profile is None:
        return plan.no_step_profile_reason
    return f"a step has {' and '.join(_uncounted_operations(plan))}, in which the ranks send unequal amounts"


def _uncounted_operations(plan: CommandPlan) -> Iterable[str]:
    """Return the operations of a step whose bytes are not known, each once."""
    calls = plan.step_profile.collectives if plan.step_profile else ()
    runs_on_gloo = plan.process_group == "gloo"
    sizes = {
        call: payload_bytes_sent(call, plan.command_strategy, plan.workers, 0, runs_on_gloo=runs_on_gloo)
        for call in calls
    }
    return dict.fromkeys(
        call.operation if call.group_size == plan.workers else f"{call.operation} among {call.group_size} ranks"
        for call, size in sizes.items()
        if size is None
    )


def unknown_prediction_lines(plans: Sequence[Plan]) -> Iterable[str]:
    """Yield, for each reason, the trials whose step times or bytes are not known."""
    trials_by_text = defaultdict[str, list[str]](list)
    for plan in plans:
        step_reason, bytes_reason = unknown_step_reason(plan), unknown_bytes_reason(plan)
        subject = "step time and bytes" if step_reason == bytes_reason else "step time"
        for name, reason in ((subject, step_reason), ("bytes", bytes_reason if bytes_reason != step_reason else "")):
            if reason:
                trials_by_text[f"{name} of {{trials}} not known: {reason}"].append(plan.trial[:3])
    for text, trials in trials_by_text.items():
        yield text.replace("{trials}", ", ".join(trials), 1)


def repeat_lines(plans: Sequence[Plan]) -> Iterable[str]:
    """Yield one line for each strategy whose repeats run the same command: they differ only by an ENSAYO_SEED."""
    repeated = (plan for plan in plans if isinstance(plan, CommandPlan) and plan.repeat)
    labels = dict.fromkeys(plan.label for plan in repeated if not plan.workload.uses_seed)
    if labels:
        yield (
            f"repeats of {', '.join(labels)} run the same command, without {{seed}}: they train the same unless the "
            "script reads ENSAYO_SEED"
        )
