"""The zero of the family: one worker, nothing to exchange. Every speed-up is measured against it."""

from typing import Literal

from services.runtime.run_log import Phases
from services.schema.arrays import Vector
from services.strategies.base import Cost, Gradient, Outcome, Peer, Predicted, Sent, State, Strategy


class Alone(Strategy):
    """Plain training on one worker."""

    kind: Literal["none"] = "none"

    def refusal(self, workers: int) -> str | None:
        return None if workers == 1 else f"strategy none trains on one worker, not on {workers}"

    def bytes_per_step(self, workers: int, entries: int, dtype: str) -> Sent:  # noqa: ARG002 - nothing is sent
        return Sent(workers=(0,))

    def predict(self, cost: Cost) -> Predicted:
        return Predicted(compute_s=cost.compute_s, exchange_s=0.0, formula="t_c")

    def init(self, peer: Peer, params: Vector) -> State:
        return peer.optimiser.init(params)

    async def step(
        self,
        peer: Peer,
        step: int,  # noqa: ARG002 - every step is the same
        params: Vector,
        gradient: Gradient,
        state: State,
        phases: Phases,
    ) -> Outcome:
        with phases.span("update"):
            return Outcome(*peer.optimiser.step(params, gradient.mean, state))
