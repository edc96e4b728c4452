"""Planning of a trial: of a training, or of a command of the user."""

from services.cluster.addresses import AddressAllocator
from services.plan.commands.command_plan import CommandPlan
from services.plan.commands.make_command_plan import make_command_plan
from services.plan.training.make_training_plan import make_training_plan
from services.plan.training.training_plan import TrainingPlan
from services.scenario.run_settings import EngineName
from services.scenario.scenario import TrialSpec


def make_plan(
    trial: TrialSpec,
    run_id: str,
    engine: EngineName,
    address_allocator: AddressAllocator,
    question: str = "",
    *,
    dilation: float = 1.0,
    alpha_s: float = 0.0,
) -> TrainingPlan | CommandPlan:
    """Return the plan of one trial.

    The same arguments give the same plan.

    Args:
        trial: the trial of a scenario.
        run_id: identifier of the run.
        engine: name of the engine that will start the nodes.
        address_allocator: source of addresses that are free for the nodes.
        question: research question that the scenario states, shown in the report.
        dilation: factor by which virtual time is slower than real time, for a scenario with `dilation: auto`.
        alpha_s: wall seconds that this host adds to a message, as calibrated; 0 without calibration.
    """
    make = make_command_plan if trial.scenario.workload.kind == "command" else make_training_plan
    return make(trial, run_id, engine, address_allocator, question, dilation=dilation, alpha_s=alpha_s)
