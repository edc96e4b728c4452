"""Check that the host had CPU capacity to spare."""

from analysis.checks.engine_kind import ran_in_virtual_time
from analysis.checks.verdict import CheckVerdict, VerdictLevel, degraded_verdict, disturbed_verdict, valid_verdict
from analysis.reading.run_table import TrialLogTables


def check_host_cpu_load(trial: TrialLogTables) -> CheckVerdict:
    """Return the verdict `degraded` if the host's CPU was busier than the trial's threshold.

    Times may then be those of the host and not of the cluster. The verdict is never invalid,
    because a busy host that met every deadline emulated the declared cluster.
    """
    if ran_in_virtual_time(trial):
        return valid_verdict("virtual time does not depend on the host")
    busy = (trial.status.get("host") or {}).get("cpu_busy")
    if busy is None:
        return degraded_verdict("the CPU load of the host was not recorded")
    limit = trial.plan.fidelity.host_cpu
    measured = f"the host's CPU was {busy:.0%} busy (limit {limit:.0%})"
    if busy > limit:
        advice = "stop other programs on this host, or raise the dilation"
        return disturbed_verdict(VerdictLevel.DEGRADED, measured, advice)
    return valid_verdict(measured)
