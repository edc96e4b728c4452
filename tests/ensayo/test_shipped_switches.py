"""What the shipped scenarios of switching answer, in virtual time: whether it pays, why, and how early it may come."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from statistics import mean
from typing import Any, TypeAlias

import pytest
from rich.console import Console
from scipy.stats import ttest_1samp, ttest_rel

from analysis.exports.readable_trials import read_readable_trials
from analysis.reading.run_folder import RunFolder
from analysis.reading.run_table import RunTable, TrialTable
from analysis.report.headline import headline_sentences
from analysis.results.analyse_run import analyse_run
from analysis.results.summary import RunSummary
from compose.engines import choose_engine
from compose.runs.run import ScenarioFile, run_scenario
from compose.scenario_files.load import find_scenario, load_scenario, read_first_comment
from ensayo.progress_display import SilentDisplay

pytestmark = pytest.mark.slow

BETA = 0.01  # of quality, as Sync-Switch has it
AT_ONCE, KNEE, LOCKSTEP = 0.0, 0.125, 1.0  # fractions before the switch
ROW = r"^\| (\d+(?:/\d+)?) \| ([\d.]+) \(([\d.]+)–([\d.]+)\) \| [^|]*\| ([\d.]+) \|"


@dataclass(frozen=True)
class Answer:
    """A run that is over."""

    table: RunTable

    @cached_property
    def numbers(self) -> RunSummary:
        return analyse_run(self.table.folder)[1]

    @property
    def told(self) -> str:
        return " ".join(headline_sentences(self.numbers))

    def seconds(self, label: str) -> list[float]:
        """To the target, by repeat; a trial that missed it has none and fails the comparison."""
        found = [trial.time_to_target_s for trial in self.numbers.trials if trial.strategy == label]
        assert all(found), f"{label} missed the target"
        return [each or 0.0 for each in found]


Ask: TypeAlias = Callable[..., Answer]
Swept: TypeAlias = dict[float, list[TrialTable]]  # by fraction, ascending; of each, by repeat


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Ask:
    """Runs a shipped scenario with other values for some keys: `ask("name", {"repeats": "1"})`; draws no figures."""

    def asked(name: str, settings: dict[str, str]) -> Answer:
        path = find_scenario(name)
        source = ScenarioFile(load_scenario(path, settings), path.read_text(), read_first_comment(path), "")
        done = run_scenario(
            source, choose_engine("simulated"), tmp_path_factory.mktemp("runs"), SilentDisplay(Console())
        )
        return Answer(read_readable_trials(RunFolder(done.folder)))

    return asked


@pytest.fixture(scope="module")
def swept(ask: Ask) -> Swept:
    """All of `sync-switch` as it ships."""
    trials: Swept = {}
    for trial in sorted(ask("sync-switch", {}).table.trials, key=place):
        trials.setdefault(place(trial)[0], []).append(trial)
    return trials


def test_where_devices_stall_leaving_the_ring_reaches_its_quality_in_four_fifths_of_its_time(ask: Ask) -> None:
    """Two seeds of the five, which all say 0.63 to 0.68; the report names what the time was lost to."""
    asked = ask("strategy-switch", {"repeats": "2"})

    ratios = [ours / ring for ours, ring in zip(asked.seconds("switch"), asked.seconds("ring"), strict=True)]

    assert max(ratios) <= 0.8
    assert "the switch paid, because a batch takes" in asked.told
    assert "no wait for the slowest (+" in asked.told


def test_where_servers_are_saturated_the_report_says_that_a_switch_does_not_pay(ask: Ask) -> None:
    """And why: more workers than the server's link has room for."""
    asked = ask("switch-saturated", {"repeats": "1", "workload.epochs": "4"})

    assert "the switch did not pay, because a batch takes" in asked.told
    assert "the servers' links are saturated: 3.24 workers fill them, 8 run" in asked.told


def test_who_never_works_in_lockstep_is_worse_beyond_what_seeds_do(swept: Swept) -> None:
    """The foot of the knee. By rank, since a seed may diverge: 5 runs below 5 others are 2 orders of 252 by chance."""
    at_once, lockstep = (qualities(swept[fraction]) for fraction in (AT_ONCE, LOCKSTEP))

    assert len(at_once) == len(lockstep) == 5
    assert max(at_once) < min(lockstep) - BETA


def test_from_the_knee_on_nothing_is_lost_beyond_what_seeds_do(swept: Swept) -> None:
    """The rest of it: at every later switch that ships, 95 % of the mean loss against lockstep is below β."""
    lockstep = qualities(swept[LOCKSTEP])
    losses = {
        fraction: ttest_rel(lockstep, qualities(trials)).confidence_interval().high
        for fraction, trials in swept.items()
        if KNEE <= fraction < LOCKSTEP
    }

    assert set(losses) == {0.125, 0.25, 0.5}
    assert max(losses.values()) < BETA, losses


def test_quality_rises_up_to_the_knee_where_time_goes_on_growing(swept: Swept) -> None:
    """A sixteenth in lockstep is worth something and not enough; every later switch takes longer, with every seed."""
    quality = [mean(qualities(trials)) for fraction, trials in swept.items() if fraction <= KNEE]
    took_s = [[took(trial) for trial in trials] for trials in swept.values()]

    assert quality == sorted(quality)
    assert all(max(map(float.__sub__, *neighbours)) < 0 for neighbours in pairwise(took_s))
    assert mean(took_s[0]) < 0.4 * mean(took_s[-1])


def test_the_time_of_both_phases_adds_up_in_every_trial(swept: Swept) -> None:
    """Within 3 %: who stalls when hangs on seed, rank and step, so a phase meets the stalls that it meets alone."""
    told = laws(swept, on_the_same_stalls)

    assert sum(map(len, told.values())) == 20
    assert {fraction: law for fraction, law in told.items() if law != pytest.approx([1] * len(law), abs=0.03)} == {}


def test_the_textbooks_two_phases_add_up_on_the_mean(swept: Swept) -> None:
    """T = p·T_bsp + (1-p)·T_asp + T_switch spreads stalls evenly, where a seed crowds them before or after a switch.

    So it holds in expectation: within 3 % on the mean over the seeds, of which 95 % has 1 within it.
    """
    for fraction, law in laws(swept, by_the_textbook).items():
        low, high = ttest_1samp(law, 1).confidence_interval()
        assert low <= 1 <= high, f"{fraction}: {low:.3f} to {high:.3f}"
        assert mean(law) == pytest.approx(1, abs=0.03), f"{fraction}"


def test_the_table_of_docs_says_what_the_sweep_gives(swept: Swept, pytestconfig: pytest.Config) -> None:
    """Seconds to their last digit. Accuracies within what another library of linear algebra may change.

    Who begins without lockstep and diverges is left out: its accuracy is chance.
    """
    text = (pytestconfig.rootpath / "docs" / "switching.md").read_text(encoding="utf-8")
    rows = {float(Fraction(cells[0])): cells[1:] for cells in re.findall(ROW, text, re.MULTILINE)}

    assert list(rows) == list(swept)
    for fraction, (accuracy, lowest, highest, seconds) in rows.items():
        found = qualities(swept[fraction])
        told = [float(each) for each in (accuracy, lowest, highest)]
        assert mean(map(took, swept[fraction])) == pytest.approx(float(seconds), abs=0.051), fraction
        assert fraction == AT_ONCE or [mean(found), min(found), max(found)] == pytest.approx(told, abs=0.006), fraction


def test_a_hand_over_takes_less_than_three_steps(swept: Swept) -> None:
    """In place: nobody restarts."""
    for trial in switched(swept):
        assert committed(trial)["seconds"] <= 3 * trial.steps["step_s"].median()


def place(trial: TrialTable) -> tuple[float, int]:
    """Fraction in lockstep, and repeat."""
    return float(trial.plan.labels["strategies.switch.fraction"]), trial.plan.repeat


def qualities(trials: list[TrialTable]) -> list[float]:
    """Accuracy on the held-out samples at the end, by repeat."""
    found = [trial.evals[trial.evals["metric"] == "accuracy"] for trial in trials]
    return [float(each["value"].iloc[-1]) for each in found]


def took(trial: TrialTable) -> float:
    """Seconds from the first step to the end."""
    assert trial.seconds is not None
    return trial.seconds


def switched(swept: Swept) -> list[TrialTable]:
    """Those with two phases."""
    return [trial for fraction, trials in swept.items() if AT_ONCE < fraction < LOCKSTEP for trial in trials]


def committed(trial: TrialTable) -> Mapping[str, Any]:
    """The record of its switch."""
    assert trial.switch_record is not None
    assert trial.switch_record.committed is not None
    return trial.switch_record.committed


def laws(swept: Swept, law: Callable[[TrialTable, TrialTable, TrialTable], float]) -> dict[float, list[float]]:
    """What both phases take by themselves over what they took together, by fraction; of each, by repeat."""
    told: dict[float, list[float]] = {}
    for trial in switched(swept):
        fraction, repeat = place(trial)
        told.setdefault(fraction, []).append(law(trial, swept[LOCKSTEP][repeat], swept[AT_ONCE][repeat]) / took(trial))
    return told


def on_the_same_stalls(trial: TrialTable, lockstep: TrialTable, at_once: TrialTable) -> float:
    """Seconds of the lockstep run up to the switch, and of the other after as many samples."""
    switch = committed(trial)
    before = lockstep.steps[lockstep.steps["step"] < switch["step"]]
    updates = at_once.updates.sort_values("time_s")
    skipped_s = updates["time_s"][updates["samples"].cumsum() <= switch["samples"]].max()
    return float((before["start_s"] + before["step_s"]).max() + took(at_once) - skipped_s + switch["seconds"])


def by_the_textbook(trial: TrialTable, lockstep: TrialTable, at_once: TrialTable) -> float:
    """Seconds by the share p of samples before the switch: p·T_bsp + (1-p)·T_asp + T_switch."""
    switch = committed(trial)
    share = switch["samples"] / trial.updates["samples"].sum()
    return float(share * took(lockstep) + (1 - share) * took(at_once) + switch["seconds"])
