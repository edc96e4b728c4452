"""Whose numbers are these? The commit that measured, the day, and the host."""

from datetime import UTC, datetime

from compose.calibration.capacity import HostFingerprint, host_fingerprint
from compose.engines.base import Engine
from compose.runs.run import checkout_commit
from services.schema.component import FrozenRecord

SHORT = 7  # digits of a commit
DIRTY = "+dirty"


class Origin(FrozenRecord):
    """Where and when a row was measured."""

    commit: str  # short; +dirty when files were changed
    date: str  # UTC
    host: HostFingerprint

    def __str__(self) -> str:
        """As a table shows it; the host stands above the table."""
        return f"{self.commit}, {self.date[:10]}"

    def is_code_of(self, other: "Origin") -> bool:
        """Whether both ran the same code for certain."""
        return self.commit == other.commit and not self.commit.endswith(DIRTY)


def origin(engine: Engine) -> Origin:
    """Of what is measured from now on."""
    found = checkout_commit()
    short = found["id"][:SHORT] + (DIRTY if found["dirty"] else "") if found else "no checkout"
    return Origin(commit=short, date=datetime.now(UTC).isoformat(timespec="minutes"), host=host_fingerprint(engine))
