"""Checks: one doubt per file, each a function of a trial that returns a Verdict. `CHECKS` is the list that is run."""

from collections.abc import Callable

from analysis.checks.achieved_rates import achieved_rates
from analysis.checks.admission import admission
from analysis.checks.bytes_on_wire import bytes_on_wire
from analysis.checks.canary import canary
from analysis.checks.drops import drops
from analysis.checks.event_horizon import event_horizon
from analysis.checks.event_lateness import event_lateness
from analysis.checks.exit_codes import exit_codes
from analysis.checks.host_cpu import host_cpu
from analysis.checks.host_pressure import host_pressure
from analysis.checks.host_share import host_share
from analysis.checks.message_times import message_times
from analysis.checks.missed_deadlines import missed_deadlines
from analysis.checks.pipes import pipes
from analysis.checks.rates import rates
from analysis.checks.record import record
from analysis.checks.replicas import replicas
from analysis.checks.round_trips import round_trips
from analysis.checks.rungs import rungs
from analysis.checks.speed_ratio import speed_ratio
from analysis.checks.staleness_law import staleness_law
from analysis.checks.throttled import throttled
from analysis.checks.unchanged import unchanged
from analysis.checks.verdict import Level, Verdict, worst
from analysis.table import TrialTable

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
