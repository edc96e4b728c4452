"""Checks: one doubt per file, each a function of a trial that returns a Verdict. `CHECKS` is the list that is run."""

from collections.abc import Callable

from analysis.checks.host.admission import admission
from analysis.checks.host.canary import canary
from analysis.checks.host.host_cpu import host_cpu
from analysis.checks.host.host_pressure import host_pressure
from analysis.checks.host.host_share import host_share
from analysis.checks.host.missed_deadlines import missed_deadlines
from analysis.checks.host.speed_ratio import speed_ratio
from analysis.checks.host.throttled import throttled
from analysis.checks.network.achieved_rates import achieved_rates
from analysis.checks.network.bytes_on_wire import bytes_on_wire
from analysis.checks.network.drops import drops
from analysis.checks.network.mechanisms import rungs
from analysis.checks.network.message_times import message_times
from analysis.checks.network.rates import rates
from analysis.checks.network.round_trips import round_trips
from analysis.checks.network.shared_links import pipes
from analysis.checks.network.unchanged import unchanged
from analysis.checks.training.event_horizon import event_horizon
from analysis.checks.training.event_lateness import event_lateness
from analysis.checks.training.exit_codes import exit_codes
from analysis.checks.training.record import record
from analysis.checks.training.replicas import replicas
from analysis.checks.training.staleness_law import staleness_law
from analysis.checks.verdict import Level, Verdict, worst
from analysis.reading.run_table import TrialTable

Check = Callable[[TrialTable], Verdict]

CHECKS: tuple[Check, ...] = (
    *(exit_codes, record, admission),
    *(missed_deadlines, speed_ratio, throttled),  # devices
    *(rungs, rates, achieved_rates, message_times, pipes, round_trips, drops, unchanged),  # links
    *(event_horizon, event_lateness),
    *(bytes_on_wire, replicas, staleness_law),  # protocols
    *(host_share, host_cpu, host_pressure, canary),
)

__all__ = ["CHECKS", "Check", "Level", "Verdict", "worst"]
