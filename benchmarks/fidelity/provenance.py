"""Origin of a measurement: the commit, the date and the host."""

from datetime import UTC, datetime

from compose.calibration.capacity import HostFingerprint, host_fingerprint
from compose.engines.base import TrialEngine
from compose.runs.git_commit import git_commit_of_checkout
from services.schema.component import FrozenRecord

SHORT_COMMIT_DIGITS = 7
DIRTY_SUFFIX = "+dirty"


class MeasurementOrigin(FrozenRecord):
    """Commit, date and host of a measurement."""

    commit: str  # abbreviated, with the suffix +dirty if the checkout had uncommitted changes
    date: str  # UTC
    host: HostFingerprint

    def __str__(self) -> str:
        """Return commit and date. Tables show the host above their rows."""
        return f"{self.commit}, {self.date[:10]}"

    def has_same_code(self, other: "MeasurementOrigin") -> bool:
        """Return whether both measurements certainly ran the same code: the same commit without changes."""
        return self.commit == other.commit and not self.commit.endswith(DIRTY_SUFFIX)


def current_origin(engine: TrialEngine) -> MeasurementOrigin:
    """Return the origin of measurements that are made now with this engine."""
    head = git_commit_of_checkout()
    short = head["id"][:SHORT_COMMIT_DIGITS] + (DIRTY_SUFFIX if head["dirty"] else "") if head else "no checkout"
    return MeasurementOrigin(
        commit=short, date=datetime.now(UTC).isoformat(timespec="minutes"), host=host_fingerprint(engine)
    )
