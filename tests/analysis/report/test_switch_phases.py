"""Comparison of a switching strategy with the strategies of its two phases, each used for the whole training."""

from collections.abc import Callable

from analysis.reading.run_table import RunLogTables
from analysis.report.headline import headline_sentences
from analysis.results.analyse_run import analyse_run

ASP = {"kind": "parameter_server", "synchrony": {"kind": "asp"}}
SWITCH = {"kind": "strategy_switch", "when": {"kind": "at", "fraction": 0.25}}
EASY = {"target": {"metric": "accuracy", "at_least": 0.5}, "epochs": 4, "evaluate_every": 240}


def test_strategies_that_equal_a_phase_are_named_in_the_result(run_simulated: Callable[..., RunLogTables]) -> None:
    """A server with other settings than those after the switch is another strategy."""
    strategies = {
        "two_servers": ASP | {"servers": 2},
        "ring": {"kind": "all_reduce"},
        "ps_asp": ASP,
        "switch": SWITCH,
        "other": SWITCH | {"after": ASP | {"synchrony": {"kind": "ssp", "staleness": 2}}},
    }

    _, summary = analyse_run(run_simulated(strategies).folder)

    named = {
        trial.strategy: (trial.switch.before_strategy, trial.switch.after_strategy)
        for trial in summary.trials
        if trial.switch
    }
    assert named == {"switch": ("ring", "ps_asp"), "other": ("ring", None)}


def test_the_report_says_that_the_second_strategy_alone_is_sooner(run_simulated: Callable[..., RunLogTables]) -> None:
    """Although the switch paid compared with the ring: a user would choose the second strategy from the start."""
    stalls = {"variation": {"kind": "on_off", "slowdown": 20, "slow_steps": 1, "fast_steps": 9}}
    strategies = {"ring": {"kind": "all_reduce"}, "ps_asp": ASP, "switch": SWITCH}

    run = run_simulated(strategies, workload=EASY, scenario_overrides={"repeats": 5}, **stalls)
    _, summary = analyse_run(run.folder)

    assert "ps_asp alone reaches accuracy ≥ 0.5 sooner: " in " ".join(headline_sentences(summary))
