"""Result of one check by `ensayo doctor`."""

from dataclasses import dataclass


@dataclass(frozen=True)
class HostCheckResult:
    """Result of one check by `ensayo doctor`.

    It states what was found, what is lost if the feature is missing, and how to get the feature.
    """

    topic: str
    found: str
    ok: bool = True
    costs: str = ""  # what is lost without it
    remedy: str = ""  # how to get it

    def __str__(self) -> str:
        status = "ok     " if self.ok else "missing"
        advice = "".join(f"\n{'':18}{line}" for line in (self.costs, self.remedy) if line)
        return f"{status} {self.topic:<9} {self.found}{advice}"
