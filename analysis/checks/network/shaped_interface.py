"""Check that the collectives of a user's command crossed the shaped network."""

from analysis.checks.verdict import CheckVerdict, invalid_verdict, valid_verdict
from analysis.reading.run_table import TrialLogTables

MIN_SHARE = 0.98  # of the payload: interfaces count headers, too, so a complete record is above 1


def check_shaped_interface(trial: TrialLogTables) -> CheckVerdict:
    """Return the verdict `invalid` if a node sent more payload than bytes on its shaped interface.

    A script can bind another interface, such as that of the control network, whose links are not shaped.
    """
    if trial.plan.workload_kind != "command" or "interface_bytes_sent" not in trial.nodes:
        return valid_verdict("no command of a user ran, or the bytes on interfaces are not known")
    counted = trial.nodes[trial.nodes["interface_bytes_sent"].notna() & (trial.nodes["payload_bytes_sent"] > 0)]
    too_few = counted[counted["interface_bytes_sent"] < MIN_SHARE * counted["payload_bytes_sent"]]
    if len(too_few):
        node = too_few.iloc[0]
        return invalid_verdict(
            f"{node['node']} sent {int(node['payload_bytes_sent']):,} bytes in collectives, but only "
            f"{int(node['interface_bytes_sent']):,} on its shaped interface; do not set "
            "GLOO_SOCKET_IFNAME in the script"
        )
    return valid_verdict("the collectives crossed the shaped interfaces" if len(counted) else "nothing was counted")
