"""What a report says of a switch: whether it came, whether it paid, and why."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from analysis.checks.bytes_on_wire import bytes_on_wire
from analysis.checks.host_share import host_share
from analysis.checks.replicas import replicas
from analysis.checks.verdict import Level
from analysis.figures import Run
from analysis.figures.predicted import predicted
from analysis.figures.switch import switch as draw_switch
from analysis.folder import RunFolder
from analysis.headline import headline
from analysis.metrics.switch import break_even_workers, switch
from analysis.phases import phases
from analysis.summary import Summary, judge, summarise
from analysis.table import RunTable, read_run
from services.links import goodput
from services.plan import Nowhere, make_plan
from services.scenario import Scenario
from services.simulate import simulate_into

STALLING = {"throughput": "1000/s", "variation": {"kind": "on_off", "slowdown": 5, "slow_steps": 4, "fast_steps": 12}}
RING_TO_ASP = {"kind": "strategy_switch", "when": {"kind": "at", "fraction": 0.5}}

Rehearse = Callable[..., RunTable]


@pytest.fixture
def rehearse(tmp_path: Path) -> Rehearse:
    """Runs strategies in virtual time and reads what they left."""

    def run(strategies: dict[str, Any], workers: int = 4, rate: str = "100mbit", **worker: Any) -> RunTable:
        links = {"uplink": rate, "downlink": rate}
        document = {
            "name": "switching",
            "workload": {
                "dataset": {"kind": "digits"},
                "model": {"kind": "mlp", "hidden": [16]},
                "optimiser": {"kind": "momentum", "rate": 0.05},
                "batch": 240,
                "epochs": 4,
            },
            "cluster": {"workers": workers, "worker": {"throughput": "1000/s", **links, **worker}, "server": links},
            "strategies": strategies,
            "baseline": False,
        }
        for trial in Scenario.decode(document).trials():
            plan = make_plan(trial, "run", "simulated", Nowhere())
            logs = tmp_path / "trials" / plan.trial / "logs"
            logs.mkdir(parents=True)
            simulate_into(plan, logs)
            (logs.parent / "plan.json").write_text(plan.model_dump_json())
            (logs.parent / "status.json").write_text(json.dumps({"status": "success", "engine": "simulated"}))
        return read_run(RunFolder(tmp_path))

    return run


def summary_of(run: RunTable) -> Summary:
    return summarise(run, judge(run))


def test_a_switch_away_from_stragglers_pays_because_nobody_waits(rehearse: Rehearse) -> None:
    """The gain adds up to what was measured, and its largest part is the one that the cluster was built for."""
    run = rehearse({"ring": {"kind": "all_reduce"}, "switch": RING_TO_ASP}, **STALLING)

    summary = summary_of(run)
    ring, trial = summary.trials
    found = trial.switch

    assert ring.switch is None
    assert found is not None
    assert found.gain is not None
    assert found.saved_s is not None
    parts = found.gain.straggler_s + found.gain.latency_s + found.gain.bandwidth_s + found.gain.queueing_s
    assert parts == pytest.approx(found.gain.batch_s)
    assert found.gain.straggler_s > 0.8 * found.gain.batch_s > 0
    assert ring.seconds is not None
    assert trial.seconds == pytest.approx(ring.seconds - found.saved_s, rel=0.1)  # halves of a run are not quite alike
    assert any(
        "the switch paid" in sentence and "no wait for the slowest" in sentence for sentence in headline(summary)
    )


def test_a_switch_to_a_saturated_server_does_not_pay(rehearse: Rehearse) -> None:
    """Equal workers wait for nobody in a ring either; eight of them queue at a server that answers for four."""
    summary = summary_of(rehearse({"switch": RING_TO_ASP}, workers=8, rate="1mbit"))
    (trial,) = summary.trials

    assert trial.switch is not None
    assert trial.switch.break_even_workers is not None
    assert trial.switch.break_even_workers < 8
    assert trial.switch.saved_s is not None
    assert trial.switch.saved_s < 0
    assert any("did not pay" in sentence for sentence in headline(summary))


def test_a_switch_that_never_comes_is_said_to_have_never_come(rehearse: Rehearse) -> None:
    """A row that looks like all-reduce must not pass for a switch."""
    run = rehearse({"switch": {"kind": "strategy_switch"}})

    summary = summary_of(run)

    assert summary.trials[0].switch is not None
    assert summary.trials[0].switch.outcome == "never switched"
    assert any(
        "never switched (the rule's value was" in sentence or "never switched" in sentence
        for sentence in headline(summary)
    )
    drawing = draw_switch(Run(run, summary))
    assert drawing is not None
    assert "never switched" in drawing.title


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"kind": "all_reduce"}, {"kind": "parameter_server", "synchrony": {"kind": "asp"}}),
        ({"kind": "parameter_server", "synchrony": {"kind": "asp"}}, {"kind": "all_reduce"}),
        ({"kind": "parameter_server"}, {"kind": "all_reduce"}),
    ],
)
def test_checks_know_the_two_phases(rehearse: Rehearse, before: dict[str, Any], after: dict[str, Any]) -> None:
    """Bytes, replicas and closed forms hold for each strategy by itself, and for the hand-over between them."""
    strategy = {"kind": "strategy_switch", "before": before, "after": after, "when": {"kind": "at", "fraction": 0.5}}
    (trial,) = rehearse({"switch": strategy}).trials

    verdicts = [check(trial) for check in (bytes_on_wire, replicas, host_share)]

    assert [verdict.level for verdict in verdicts] == [Level.VALID] * 3, verdicts
    assert [phase.name for phase in phases(trial)] == ["before", "after"]


def test_every_phase_is_held_against_its_own_closed_form(rehearse: Rehearse) -> None:
    """One median over both would compare a ring's steps with a server's form."""
    run = rehearse({"switch": RING_TO_ASP})

    drawing = predicted(Run(run, summary_of(run)))

    assert drawing is not None
    assert list(drawing.data["phase"]) == ["before", "after"]
    assert drawing.data["remainder"].abs().max() < 0.05


def test_the_break_even_is_the_references(rehearse: Rehearse) -> None:
    """n* = s·(t_c·B/S + 2)."""
    (trial,) = rehearse({"switch": RING_TO_ASP}, rate="10mbit").trials
    planned = trial.plan

    found = break_even_workers(planned)

    assert found == pytest.approx(planned.predicted.compute_s * goodput(10e6) / planned.vector_bytes + 2)


def test_a_switch_before_the_first_step_has_nothing_to_compare_with(rehearse: Rehearse) -> None:
    """There is no batch before it."""
    (trial,) = rehearse({"switch": RING_TO_ASP | {"when": {"kind": "at", "step": 0}}}).trials

    found = switch(trial)

    assert found is not None
    assert (found.outcome, found.gain, found.share) == ("switched", None, 0.0)
