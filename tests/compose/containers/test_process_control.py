"""Faults of nodes in containers that Docker does not apply at the first request."""

from dataclasses import dataclass
from typing import Any, cast

import pytest
from docker.errors import APIError

from compose.engines.containers import process_control
from compose.engines.containers.process_control import FREEZE_TRIES, ContainerProcessControl


@dataclass
class StartingContainer:
    """Container whose processes can't be frozen at first, because they are being started."""

    failures: int

    def pause(self) -> None:
        self.failures -= 1
        if self.failures >= 0:
            raise APIError("unable to freeze")


def freeze(container: StartingContainer) -> None:
    control = ContainerProcessControl(cast("Any", None), lambda _: cast("Any", container), {}, lambda _: None)
    control.apply_action("freeze", "worker-1")


def test_a_node_that_cannot_be_frozen_at_once_is_frozen_by_a_later_try(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that is started again is frozen right after its start; a failure would end its trial."""
    monkeypatch.setattr(process_control, "FREEZE_RETRY_DELAY_S", 0.0)
    container = StartingContainer(failures=FREEZE_TRIES - 1)

    freeze(container)

    assert container.failures == -1


def test_a_node_that_cannot_be_frozen_at_all_fails_its_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_control, "FREEZE_RETRY_DELAY_S", 0.0)

    with pytest.raises(APIError, match="unable to freeze"):
        freeze(StartingContainer(failures=FREEZE_TRIES))
