"""Origin of a measurement: the commit, the date and the host."""

from datetime import UTC, datetime

from compose.calibration.capacity import HostFingerprint, host_fingerprint
from compose.engines.base import TrialEngine
from compose.runs.git_commit import git_commit_of_checkout
from services.schema.component import FrozenRecord

SHORT_COMMIT_DIGITS = 7
DIRTY_SUFFIX = "+dirty"
NO_CHECKOUT = "no checkout"


class MeasurementOrigin(FrozenRecord):
    """Commit, date and host of a measurement."""

    commit: str  # abbreviated, with the suffix +dirty if the checkout had uncommitted changes
    date: str  # UTC
    host: HostFingerprint

    @property
    def is_one_commit(self) -> bool:
        """Whether the commit states the code that was measured: a checkout without uncommitted changes."""
        return self.commit != NO_CHECKOUT and not self.commit.endswith(DIRTY_SUFFIX)

    def is_comparable(self, other: "MeasurementOrigin") -> bool:
        """Return whether one table may contain both measurements: one commit, without changes, on one host."""
        return self.is_one_commit and self.commit == other.commit and self.host == other.host


def current_origin(engine: TrialEngine) -> MeasurementOrigin:
    """Return the origin of measurements that are made now with this engine."""
    head = git_commit_of_checkout()
    short = head["id"][:SHORT_COMMIT_DIGITS] + (DIRTY_SUFFIX if head["dirty"] else "") if head else NO_CHECKOUT
    return MeasurementOrigin(
        commit=short, date=datetime.now(UTC).isoformat(timespec="minutes"), host=host_fingerprint(engine)
    )
