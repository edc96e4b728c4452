"""Plans of commands without a dry run, and schedules of metered steps."""

from collections.abc import Mapping
from typing import Any

from services.cluster.addresses import DummyAddresses
from services.plan import CommandPlan, make_plan
from services.scenario.commands import step_profile
from services.scenario.commands.step_profile import CollectiveCall, StepProfile, StepProfileOutcome
from services.scenario.scenario import Scenario

NO_STEP_PROFILE = StepProfileOutcome(None, "no dry run in this test")


def make_step_profile(*collectives: tuple[str, int], launch_shares: tuple[float, ...], **others: Any) -> StepProfile:
    """Return the profile of a step with asynchronous collectives (operation, bytes) of two ranks."""
    group_size, is_asynchronous = others.pop("group_size", 2), others.pop("is_asynchronous", True)
    calls = tuple(
        CollectiveCall(operation=operation, bytes=size, group_size=group_size, is_asynchronous=is_asynchronous)
        for operation, size in collectives
    )
    waits = others.get("wait_shares", (launch_shares[-1],) * len(calls) if is_asynchronous else launch_shares)
    return StepProfile(
        collectives=calls,
        launch_shares=launch_shares,
        wait_shares=waits,
        update_share=others.get("update_share", 1.0),
        cpu_s=0.001,
    )


def plan_command(
    profile: StepProfileOutcome = NO_STEP_PROFILE,
    worker: dict[str, Any] | None = None,
    strategy: dict[str, Any] | None = None,
    workers: int = 2,
    **workload: Any,
) -> CommandPlan:
    """Return the plan of a command on so many workers."""
    scenario = Scenario.decode(
        {
            "name": "command",
            "workload": {"kind": "command", "command": ["python", "train.py"], **workload},
            "cluster": {"workers": workers, "worker": {"memory": "512MiB", **(worker or {})}},
            "strategies": {"script": {"kind": "command", **(strategy or {})}},
            "baseline": False,
        }
    )
    (trial,) = scenario.trials()
    installed = step_profile._profilers[0]
    step_profile.install_step_profiler(lambda *_: profile)
    try:
        plan = make_plan(trial, "run", "docker", DummyAddresses())
    finally:
        step_profile.install_step_profiler(installed)
    assert isinstance(plan, CommandPlan)
    return plan


def schedule_of(dry_run_result: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
    """Return the step schedule in the settings of the metering for the step profile of a dry run, with changes."""
    profile = dict(dry_run_result["step_profile"])
    kinds = [(call["operation"], call["bytes"], call["dtype"]) for call in profile["collectives"]]
    names = ("launch_shares", "wait_shares", "update_share", "begins_without_gradient")
    return {"collectives": kinds, **{name: profile[name] for name in names}, **changes}
