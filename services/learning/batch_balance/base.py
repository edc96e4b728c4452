"""Base class of the rules that divide a batch over the workers."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import ClassVar, TypeAlias

from pydantic import Field, PositiveInt

from services.schema.component import ScenarioComponent
from services.schema.conflicts import KeyConflict

# Samples per second of each worker, by rank: positive, or None where the scenario declares none.
DeclaredSpeeds: TypeAlias = Sequence[float | None]
MeasuredSpeeds: TypeAlias = tuple[float, ...]  # samples per second of each worker, by rank; 0: not measured yet
BatchShares: TypeAlias = tuple[int, ...]  # samples of a whole batch by rank, or equal weights


class BatchBalance(ScenarioComponent):
    """Rule that divides a batch over the workers.

    The sum of all shares is always the batch. Gradients are weighted by samples, so the update does not depend on the
    shares. Smaller batches, such as the last one of an epoch, are divided in proportion to the shares of a whole batch.
    """

    has_equal_shares: ClassVar[bool] = False  # whether all workers always have equal shares

    @property
    def resize_period(self) -> int:
        """Number of steps after which workers exchange measured speeds and may change the shares; 0: never."""
        return 0

    def find_scenario_conflicts(
        self,
        batch: int,  # noqa: ARG002 - most rules fit every batch
        declared_speeds: DeclaredSpeeds,  # noqa: ARG002
        step_count: int,  # noqa: ARG002
    ) -> Iterator[KeyConflict]:
        """Yield the conflicts of this rule with the batch, the speeds of the workers, and the length of the training.

        Key paths are relative to the rule.
        """
        yield from ()

    @abstractmethod
    def initial_shares(self, batch: int, declared_speeds: DeclaredSpeeds) -> BatchShares:
        """Return the shares of a batch at the first step, by rank."""

    def smooth_speed(self, smoothed_speed: float, sample_count: int, compute_s: float) -> float:  # noqa: ARG002 - most rules measure nothing
        """Return the smoothed speed of a worker after one more step, in samples per second.

        Args:
            smoothed_speed: smoothed speed before the step; 0 before the first measurement.
            sample_count: samples of the worker in the step.
            compute_s: duration of the compute phase of the step.
        """
        return smoothed_speed

    def resize_shares(self, shares: BatchShares, measured_speeds: MeasuredSpeeds) -> BatchShares:  # noqa: ARG002 - see above
        """Return the shares of the next steps, given the measured speeds of all workers by rank.

        The result is a pure function of the arguments, so that all ranks compute the same shares.
        """
        return shares


class LimitedBalance(BatchBalance):
    """Base class of rules with unequal shares, which may have an upper limit."""

    max_share: PositiveInt | None = Field(
        None, description="largest number of samples that a worker processes in a step, such as its memory allows"
    )

    def find_scenario_conflicts(
        self,
        batch: int,
        declared_speeds: DeclaredSpeeds,
        step_count: int,  # noqa: ARG002 - see base
    ) -> Iterator[KeyConflict]:
        workers = len(declared_speeds)
        if self.max_share is not None and self.max_share * workers < batch:
            message = (
                f"{workers} workers with at most {self.max_share} samples each can't process a batch of {batch}; use "
                f"at least {-(-batch // workers)}, or a smaller batch"
            )
            yield KeyConflict(("max_share",), message)
