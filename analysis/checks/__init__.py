"""Checks: one doubt per file, each a function of a trial that returns a Verdict. `CHECKS` is the list that is run."""

from collections.abc import Callable

from analysis.checks.bytes_on_wire import bytes_on_wire
from analysis.checks.exit_codes import exit_codes
from analysis.checks.host_cpu import host_cpu
from analysis.checks.missed_deadlines import missed_deadlines
from analysis.checks.rates import rates
from analysis.checks.replicas import replicas
from analysis.checks.staleness_law import staleness_law
from analysis.checks.verdict import Level, Verdict, worst
from analysis.table import TrialTable

Check = Callable[[TrialTable], Verdict]

CHECKS: tuple[Check, ...] = (exit_codes, missed_deadlines, rates, bytes_on_wire, replicas, staleness_law, host_cpu)

__all__ = ["CHECKS", "Check", "Level", "Verdict", "worst"]
