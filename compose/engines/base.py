"""Interface of an engine, which starts the nodes of a trial plan."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol

from services.cluster.addresses import AddressAllocator
from services.plan import Plan
from services.plan.trial_outcome import TrialOutcome
from services.runtime.device import select_compute_device
from services.scenario.run_settings import EngineName
from services.schema.errors import HostError


class TrialEventObserver(Protocol):
    """Observer that is notified of the events that the coordinator logs while a trial runs."""

    def coordinator_event_logged(self, plan: Plan, log_event: Mapping[str, Any]) -> None:
        """Handle one event from the coordinator's log."""


class EnginePreparationObserver(Protocol):
    """Observer that is notified when an engine starts a preparation, such as building an image."""

    def engine_preparation_started(self, preparation_description: str) -> None:
        """Handle the start of a preparation, such as building an image."""


class TrialEngine(ABC):
    """A way to run the nodes of a trial on this host: as containers, as processes, or simulated in virtual time."""

    name: ClassVar[EngineName]

    @abstractmethod
    def missing_software(self) -> str | None:
        """Return a message about the software that the engine needs and this host lacks.

        Return None if the engine can run.
        """

    def missing_gpu_reason(self) -> str | None:
        """Return why nodes of this engine have no GPU on this host; None if they have one."""
        try:
            select_compute_device("cuda")
        except HostError as error:
            return f"CuPy failed with {error.__cause__!r}"
        return None

    @abstractmethod
    def choose_addresses(self, run_name: str, node_count: int) -> AddressAllocator:
        """Return free addresses for the nodes of a run."""

    @abstractmethod
    def run_trial(self, plan: Plan, trial_folder: Path, observer: TrialEventObserver) -> TrialOutcome:
        """Run one trial to its end, and stop all its nodes even after an error.

        Args:
            plan: made for this engine.
            trial_folder: receives the logs, `<trial_folder>/logs/<node>.log`.
            observer: receives the coordinator's events as they are logged.

        Raises:
            HostError: this host can't do what the plan requires.
        """

    def describe_engine_versions(self) -> dict[str, Any]:
        """Return facts about the engine for the run's manifest, such as versions and image digests."""
        return {}

    def prepare(self, preparation_observer: EnginePreparationObserver) -> None:  # noqa: B027 - most engines have nothing to prepare
        """Prepare resources that all trials of a run share, such as container images."""

    def check_plans(self, plans: Sequence[Plan]) -> None:  # noqa: B027 - most engines run all plans
        """Check that nodes of this engine can run these plans.

        Raises:
            HostError: nodes lack what a plan needs; the message states the remedy.
        """

    def close(self) -> None:  # noqa: B027 - most engines keep nothing
        """Release the resources that `prepare` acquired."""
