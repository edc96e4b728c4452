"""Tests of the command `ensayo search-faults`: choice of seeds and strategies, findings, and replays."""

from pathlib import Path

import pytest
from planted_bugs import apply_duplicates, planted
from typer.testing import CliRunner

from ensayo.cli import app
from ensayo.exit_codes import ExitCode
from ensayo.fault_search.schedule_draw import draw_schedule
from ensayo.fault_search.search import (
    choose_strategies,
    describe_failures,
    parse_seeds,
    read_schedule,
    search_seeds,
    write_schedule,
)
from ensayo.fault_search.strategy_table import STRATEGY_TABLE
from services.schema.errors import UserError

pytestmark = pytest.mark.without_nodes

TINY_SCHEDULE = "seed: 1\nstrategy: {kind: none}\nworkers: 1\nsteps: 2\n"


def test_command_reports_a_search_without_findings() -> None:
    result = CliRunner().invoke(app, ["search-faults", "--seeds", "0-3", "--strategy", "all_reduce_ring"])

    assert result.exit_code == ExitCode.OK
    assert "4 fault schedules" in result.output
    assert "all invariants hold" in result.output


def test_findings_name_seed_invariant_and_replay_and_have_a_schedule_that_fails(tmp_path: Path) -> None:
    """The schedule is a file that the command replays."""
    strategies = choose_strategies(None, "server_bsp")
    with planted(apply_duplicates):
        found = search_seeds(range(8), strategies, single_process=True)
        texts = describe_failures(found, strategies, None, "server_bsp")
        report = next(texts) + next(texts)
        (path := tmp_path / "schedule.yaml").write_text(report.partition("--replay FILE:\n")[2])
        failing = CliRunner().invoke(app, ["search-faults", "--replay", str(path)])
    mended = CliRunner().invoke(app, ["search-faults", "--replay", str(path)])

    failure = found.failures[0]
    assert f"seed {failure.seed} violates {failure.violation.invariant}" in report
    assert f"ensayo search-faults --strategy server_bsp --seeds {failure.seed}" in report
    assert failing.exit_code == ExitCode.FAILED
    assert failure.violation.invariant in failing.output
    assert mended.exit_code == ExitCode.OK


def test_command_with_findings_fails() -> None:
    with planted(apply_duplicates):
        result = CliRunner().invoke(app, ["search-faults", "--seeds", "0-7", "--strategy", "server_bsp"])

    assert result.exit_code == ExitCode.FAILED
    assert "violate an invariant" in result.output


@pytest.mark.parametrize("seed", range(12))
def test_written_schedule_is_read_unchanged(seed: int, tmp_path: Path) -> None:
    schedule = draw_schedule(seed, STRATEGY_TABLE)
    (path := tmp_path / "schedule.yaml").write_text(write_schedule(schedule))

    assert read_schedule(path) == schedule


def test_strategies_of_a_scenario_replace_the_table() -> None:
    """Users search with their own strategies and settings."""
    strategies = choose_strategies("quickstart", None)

    assert strategies
    assert strategies != STRATEGY_TABLE
    assert search_seeds(range(3), strategies, single_process=True).failures == ()


@pytest.mark.parametrize("text", ["", "a", "5-3", "1-", "-4", "0-9-12"])
def test_wrong_seeds_are_rejected(text: str) -> None:
    with pytest.raises(UserError, match="0-999"):
        parse_seeds(text)


def test_unknown_strategy_is_rejected_with_the_labels() -> None:
    with pytest.raises(UserError, match=r"--strategy rng: .*all_reduce_ring"):
        choose_strategies(None, "rng")


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("seed: 1\nstrategy: {kind: none}\nworkers: 1\nsteps: 3\n", "steps"),
        ("seed: 1\nstrategy: {kind: nothing}\nworkers: 1\nsteps: 2\n", "kind"),
        ("seed: 1\nstrategy: {kind: none}\nworkers: 2\nsteps: 2\n", "one worker"),
        (f"{TINY_SCHEDULE}events: [{{kind: flood}}]\n", "flood"),
        (f"{TINY_SCHEDULE}events: [{{kind: pause, of: [worker-7], at: {{step: 1}}, lasts: 1s}}]\n", "no node worker-7"),
    ],
)
def test_file_that_is_no_schedule_is_rejected(text: str, cause: str, tmp_path: Path) -> None:
    (path := tmp_path / "schedule.yaml").write_text(text)

    with pytest.raises(UserError, match=cause):
        read_schedule(path)


def test_missing_schedule_file_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="can't be read"):
        read_schedule(tmp_path / "none.yaml")
