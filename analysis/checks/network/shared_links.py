"""Check that links shared by several nodes have their declared rates."""

from collections.abc import Iterator
from typing import NamedTuple

from analysis.checks.engine_kind import are_links_shaped_by_kernel
from analysis.checks.verdict import (
    WRONG_LINKS_REMEDY,
    CheckVerdict,
    VerdictLevel,
    degraded_verdict,
    disturbed_verdict,
    valid_verdict,
)
from analysis.reading.run_table import TrialLogTables

READ_BACK_METHOD = "read back"


class SharedLinkRate(NamedTuple):
    """Declared and achieved rate of a shared link, in bits per second of virtual time.

    Virtual time is the time of the emulated cluster.
    """

    name: str
    declared_bps: float
    achieved_bps: float | None  # None: not measured
    measured_how: str  # probed with flows, read back, not at all

    @property
    def relative_rate_error(self) -> float | None:
        """Relative error of the achieved rate: achieved rate / declared rate - 1.

        None if the rate was not measured.
        """
        return None if self.achieved_bps is None else self.achieved_bps / self.declared_bps - 1


def check_shared_link_rates(trial: TrialLogTables) -> CheckVerdict:
    """Compare the achieved rate of each shared link with its declared rate.

    The achieved rate is that of probe flows, else the rate read back from the kernel. Invalid if it is off by more than
    the threshold, degraded if it was neither probed nor read back.
    """
    if not are_links_shaped_by_kernel(trial) or not trial.plan.network.shared_links:
        return valid_verdict("no link is shared, or Ensayo's own code enforces its rate")
    links = list(compare_shared_link_rates(trial))
    errors = {link.name: link.relative_rate_error for link in links if link.relative_rate_error is not None}
    limit = trial.plan.fidelity.rate_error
    worst = max(errors, key=lambda name: abs(errors[name]), default=None)
    if worst and abs(errors[worst]) > limit:
        reason = f"{worst} is {errors[worst]:+.1%} off its declared rate (limit {limit:.0%})"
        return disturbed_verdict(VerdictLevel.INVALID, reason, remedy=WRONG_LINKS_REMEDY)
    if unknown := [link.name for link in links if link.relative_rate_error is None]:
        return degraded_verdict(f"the rate of shared links was not verified: {', '.join(unknown)}")
    measured = f"{len(links)} shared links were within {max(map(abs, errors.values())):.1%} of their declared rates"
    read_back_count = sum(link.measured_how == READ_BACK_METHOD for link in links)
    if read_back_count:
        return valid_verdict(f"{measured}; {read_back_count} of them were only read back from the kernel")
    return valid_verdict(measured)


def compare_shared_link_rates(trial: TrialLogTables) -> Iterator[SharedLinkRate]:
    """Yield the declared and the achieved rate of every shared link.

    The achieved rate is probed with flows, else read back from the kernel.
    """
    shaping = (trial.status.get("shaping") or {}).values()
    probed_bps = {name: rate for link in shaping for name, rate in (link.get("achieved_pipes_bps") or {}).items()}
    read_back_bps = {name: rate["achieved"] for link in shaping for name, rate in (link.get("pipes_bps") or {}).items()}
    for pipe in trial.plan.network.shared_links:
        achieved_bps = probed_bps.get(pipe.name, read_back_bps.get(pipe.name))
        if pipe.name in probed_bps:
            measured_how = "probed with flows"
        elif pipe.name in read_back_bps:
            measured_how = READ_BACK_METHOD
        else:
            measured_how = "not at all"
        yield SharedLinkRate(pipe.name, pipe.rate_bps, achieved_bps, measured_how)
