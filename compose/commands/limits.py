"""What engines can't do with a user's command, found before anything starts."""

from collections.abc import Sequence

from compose.commands.dry_run import STEPS, TIMEOUT_S
from compose.commands.packages import explain_packages_missing_in_containers
from compose.commands.unreadable_files import explain_unreadable_file
from compose.engines.containers.node_image.packages import check_host_pythons
from services.commands.missing_module import advise_on_missing_module
from services.plan import CommandPlan, Plan
from services.schema.errors import UserError

SCRIPT_ERRORS = ("ended with exit code", "the script failed")  # in reasons: the command fails without pacing, too
TOO_FEW_STEPS = ("the script ended after", "made fewer than")
WITHOUT_PACING = "remove throughput, profile and utilisation, so that the command runs as fast as this host"


def check_commands(plans: Sequence[Plan]) -> None:
    """Check that the engine of these plans can run, shape and pace their commands.

    Raises:
        UserError: it can't; the message states the reason and the remedy.
        HostError: containers can't import the packages of the host's Python.
    """
    for plan in plans:
        if isinstance(plan, CommandPlan):
            _check_engine(plan)
            _check_pacing(plan)


def _check_engine(plan: CommandPlan) -> None:
    if plan.engine != "docker" and plan.workload.image:
        raise UserError(
            f"trial {plan.trial}: workload.image needs containers, but the engine is {plan.engine}; use --engine "
            "docker, or declare the environment of the command with requirements or python"
        )
    if plan.engine == "docker":
        check_host_pythons([plan])
        if reason := explain_packages_missing_in_containers(plan.workload):
            raise UserError(f"trial {plan.trial}: workload.requires: {reason}")
        if reason := explain_unreadable_file(plan.workload):
            raise UserError(f"trial {plan.trial}: workload.folder: {reason}")
    has_links = bool(plan.network.paths or plan.network.shared_links) or any(
        node.uplink_bps or node.downlink_bps for node in plan.nodes
    )
    if plan.engine == "local" and any(event.is_link_event for event in plan.events):
        raise UserError(f"trial {plan.trial}: engine local can't change the links of a command; use --engine docker")
    if plan.engine == "local" and plan.process_group == "gloo" and has_links and plan.workers > 1:
        raise UserError(
            f"trial {plan.trial}: engine local shapes links inside Ensayo's own transport, which gloo does not use; "
            "use --engine docker, or a strategy with process_group: ensayo, or remove the rates and delays of cluster"
        )


def _check_pacing(plan: CommandPlan) -> None:
    paced = [node.name for node in plan.node_plans_of_role("worker") if node.throughput]
    if not paced or plan.step_profile is not None:
        return
    reason = plan.no_step_profile_reason
    remedy = advise_on_missing_module(reason, plan.workload)
    if not remedy and any(text in reason for text in SCRIPT_ERRORS):
        remedy = "correct the command"
    if not remedy and any(text in reason for text in TOO_FEW_STEPS):
        remedy = f"let it make {STEPS} steps within {TIMEOUT_S:g} s, or {WITHOUT_PACING}"
    raise UserError(
        f"trial {plan.trial}: {paced[0]} declares a compute speed, but there is no step profile of the command: "
        f"{reason}; {remedy or WITHOUT_PACING}"
    )
