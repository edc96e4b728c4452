"""Check that the declared time limit of a trial is longer than the predicted training time."""

from collections.abc import Sequence

from services.plan import Plan
from services.schema.errors import UserError


def check_run_timeouts(plans: Sequence[Plan]) -> None:
    """Check that no trial is predicted to take longer than `timeouts.run`.

    A link or a device that is far too slow, such as one of 1 bit/s, would otherwise fail the trial only at its end.

    Raises:
        UserError: a trial would be ended by `timeouts.run`; the message names the slowest trial.
    """
    slowest = max(plans, key=_min_training_s)
    if (predicted_s := _min_training_s(slowest)) > slowest.timeouts.run:
        raise UserError(
            f"timeouts.run: {slowest.trial} is predicted to train for at least {predicted_s:,.0f} s of virtual time, "
            f"longer than timeouts.run ({slowest.timeouts.run}); increase timeouts.run, reduce workload.epochs, or "
            "declare faster links and devices"
        )


def _min_training_s(plan: Plan) -> float:
    """Return a time that training takes at least by the prediction, in virtual seconds.

    It is a single step if the quality of the model decides when training ends or when the strategy switches, and if the
    training time is only estimated.
    """
    stops_at_target = plan.target is not None and plan.stop_at_target
    is_open_ended = stops_at_target or (plan.second_phase and plan.second_phase.planned_step is None)
    return plan.predicted.step_s if is_open_ended or plan.training_inapplicable_reason else plan.predicted_s
