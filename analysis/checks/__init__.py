"""Checks of a trial's accuracy, one per file.

Each check is a function that takes a trial and returns a verdict. `CHECKS` lists the checks by name.
"""

from collections.abc import Callable

from analysis.checks.host.cpu_quota_speed import check_worker_speed_fits_quota
from analysis.checks.host.cpu_throttling import check_cpu_throttling
from analysis.checks.host.host_cpu import check_host_cpu_load
from analysis.checks.host.host_overhead import check_host_added_time
from analysis.checks.host.host_pressure import check_host_resource_pressure
from analysis.checks.host.missed_deadlines import check_missed_step_deadlines
from analysis.checks.host.time_dilation import check_time_dilation
from analysis.checks.host.wakeup_delay import check_wakeup_delay
from analysis.checks.network.achieved_rates import check_measured_link_rates
from analysis.checks.network.bytes_on_wire import check_bytes_sent
from analysis.checks.network.links_unchanged import check_links_unchanged_in_run
from analysis.checks.network.mechanisms import check_shaping_enforced
from analysis.checks.network.message_times import check_probe_message_times
from analysis.checks.network.queue_drops import check_queue_drops
from analysis.checks.network.rates import check_configured_link_rates
from analysis.checks.network.round_trips import check_round_trips
from analysis.checks.network.shaped_interface import check_shaped_interface
from analysis.checks.network.shared_links import check_shared_link_rates
from analysis.checks.training.batch_shares import check_batch_shares
from analysis.checks.training.command_pacing import check_command_pacing
from analysis.checks.training.event_horizon import check_events_cover_trial
from analysis.checks.training.event_lateness import check_planned_event_lateness
from analysis.checks.training.exit_codes import check_exit_codes
from analysis.checks.training.replicas import check_model_replicas_agree
from analysis.checks.training.staleness import check_gradient_staleness
from analysis.checks.training.trial_files import check_trial_files_readable
from analysis.checks.verdict import CheckVerdict, VerdictLevel, worst_verdict_level
from analysis.reading.run_table import TrialLogTables

Check = Callable[[TrialLogTables], CheckVerdict]

CHECKS: dict[str, Check] = {  # the names are keys in fidelity.json and must not change
    "exit_codes": check_exit_codes,
    "record": check_trial_files_readable,
    "admission": check_time_dilation,
    # devices
    "missed_deadlines": check_missed_step_deadlines,
    "speed_ratio": check_worker_speed_fits_quota,
    "throttled": check_cpu_throttling,
    "command_pacing": check_command_pacing,
    # links
    "rungs": check_shaping_enforced,
    "rates": check_configured_link_rates,
    "achieved_rates": check_measured_link_rates,
    "message_times": check_probe_message_times,
    "pipes": check_shared_link_rates,
    "round_trips": check_round_trips,
    "drops": check_queue_drops,
    "unchanged": check_links_unchanged_in_run,
    # events
    "event_horizon": check_events_cover_trial,
    "event_lateness": check_planned_event_lateness,
    # protocols
    "bytes_on_wire": check_bytes_sent,
    "shaped_interface": check_shaped_interface,
    "replicas": check_model_replicas_agree,
    "staleness_law": check_gradient_staleness,
    "batch_shares": check_batch_shares,
    # host
    "host_share": check_host_added_time,
    "host_cpu": check_host_cpu_load,
    "host_pressure": check_host_resource_pressure,
    "canary": check_wakeup_delay,
}

__all__ = ["CHECKS", "Check", "CheckVerdict", "VerdictLevel", "worst_verdict_level"]
