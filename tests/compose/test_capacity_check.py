"""A trial that this host can't run is rejected before it starts, and the error names a dilation that is enough."""

import json
from math import ceil
from pathlib import Path
from typing import Any

import pytest

from compose.calibration.capacity import HostCapacity, HostFingerprint, assumed_capacity, load_capacity, save_capacity
from compose.engines import create_engine
from compose.host.capacity_check import USUAL_DILATIONS, CapacityCheck, TrialHostDemand, check_plans
from compose.host.compute_speed import ComputeSpeed, measure_gradient_s, measure_update_s
from compose.runs.run import check_host_capacity
from compose.scenario_files.load import find_scenario, load_scenario
from ensayo import cli
from services.cluster.addresses import InProcessAddresses
from services.learning.datasets import AnyDataset
from services.learning.models import AnyModel
from services.plan import Plan, make_plan
from services.scenario.scenario import Scenario
from services.schema.errors import UserError

HERE = HostFingerprint(cpu="made up", cores=2, kernel="6", engine="1")
RING, STAR = {"kind": "all_reduce"}, {"kind": "parameter_server"}
TREE = {"kind": "tree"}
GIGABIT = {"uplink": "1gbit", "downlink": "1gbit"}


def host_capacity(**changes: float) -> HostCapacity:
    """Return a host that shapes links of 1 Gbit/s, 8 Gbit/s in total, and needs a millisecond of CPU per message."""
    costs = {"alpha_s": 0.0, "shaped_bps": 1e9, "total_bps": 8e9, "message_cpu_s": 1e-3, "byte_cpu_s": 0, "sum_s": 0}
    return HostCapacity(engine="docker", fingerprint=HERE, note="made up", **(costs | changes))


COMPUTE_1_MS = ComputeSpeed(gradient_s=lambda *_: 1e-3, update_s=lambda *_: 0.0)  # for every model and batch


def make_scenario(
    strategy: dict[str, Any] = RING, workers: int = 4, dilation: float | str = 1.0, **cluster_settings: Any
) -> Scenario:
    document = {
        "name": "wanted",
        "workload": {
            "dataset": {"kind": "digits"},
            "model": {"kind": "mlp", "hidden": [256, 128]},
            "optimiser": {"kind": "adam", "rate": 1e-3},
            "batch_per_worker": 16,
        },
        "cluster": {"workers": workers, **cluster_settings},
        "strategies": {"it": strategy},
        "baseline": False,
        "dilation": dilation,
    }
    return Scenario.decode(document)


def make_plans(tested_scenario: Scenario) -> list[Plan]:
    return [make_plan(trial, "run", "docker", InProcessAddresses()) for trial in tested_scenario.trials()]


def check(tested_scenario: Scenario, **changes: float) -> CapacityCheck:
    return check_plans(tested_scenario, make_plans(tested_scenario), host_capacity(**changes), COMPUTE_1_MS)


def test_links_that_this_host_shapes_need_no_dilation() -> None:
    """Four links of 1 Gbit/s, at once, below 8."""
    assert check(make_scenario(dilation="auto", worker=GIGABIT)).dilation == 1


def test_a_link_is_slowed_to_what_this_host_shapes() -> None:
    """25 over 1 is 25; the next of the usual dilations is 32."""
    admission = check(make_scenario(dilation="auto", worker={"link": "25gbe"}), total_bps=1e12)

    assert admission.dilation == 32
    assert admission.most_demanding_trial is not None
    assert admission.most_demanding_trial.bottleneck_need == "worker-0's uplink of 25 Gbit/s"
    assert admission.most_demanding_trial.needs[admission.most_demanding_trial.bottleneck_need] == pytest.approx(25)


def test_a_link_that_nobody_can_fill_does_not_count_beyond_what_arrives() -> None:
    """Four workers of 1 Gbit/s send 4 into a port of 100."""
    wide = {"uplink": "100gbit", "downlink": "100gbit"}

    needs = check(make_scenario(STAR, dilation="auto", worker=GIGABIT, server=wide)).demands[0].needs

    assert needs["server-0's downlink of 100 Gbit/s"] == pytest.approx(4)


def test_all_links_together_count() -> None:
    """A ring of eight uses all of them at once: 8 times 1448/1514 Gbit/s of payload."""
    (tested_scenario,) = check(make_scenario(workers=8, dilation="auto", worker=GIGABIT), total_bps=1e9).demands

    assert max(tested_scenario.needs.values()) == pytest.approx(8 * 1448 / 1514)
    assert tested_scenario.bottleneck_need.startswith("all links together")


def test_a_server_is_never_sent_more_than_its_link_takes() -> None:
    """Eight workers share one downlink: 1 Gbit/s in all, not 8."""
    (tested_scenario,) = check(make_scenario(STAR, 8, "auto", worker=GIGABIT, server=GIGABIT), total_bps=1e9).demands

    assert tested_scenario.needs["all links together, 0.956 Gbit/s"] == pytest.approx(1448 / 1514)


@pytest.mark.parametrize(("before", "after"), [(RING, STAR), (STAR, RING), (RING, {**RING, "collective": TREE})])
def test_a_switch_wants_what_each_of_its_strategies_wants(before: dict[str, Any], after: dict[str, Any]) -> None:
    """A host that can carry the first one only would spoil the second."""
    switch = {"kind": "strategy_switch", "before": before, "after": after, "when": {"kind": "at", "epoch": 1}}
    paced = GIGABIT | {"throughput": "1000/s"}

    demands = [check(make_scenario(each, 8, "auto", worker=paced)).demands[0] for each in (switch, before, after)]

    whole, first, second = demands
    assert whole.wishes == first.wishes | second.wishes
    assert max(whole.needs.values()) == pytest.approx(max(*first.needs.values(), *second.needs.values()))
    assert whole.cpu_s == max(first.cpu_s, second.cpu_s)


@pytest.mark.parametrize(("before", "after"), [(RING, STAR), (STAR, RING)])
def test_the_same_mathematics_wants_what_the_strategy_with_shorter_steps_leaves_it(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    """In the longer steps behind one server's link more may be late: it is not that which decides."""
    switch = {"kind": "strategy_switch", "before": before, "after": after, "when": {"kind": "at", "epoch": 1}}
    slow = {"uplink": "10mbit", "downlink": "10mbit"}
    cluster = {"worker": slow | {"throughput": "16000/s"}, "server": slow}

    whole, first, second = (demanded(make_scenario(each, 8, **cluster))[0].needs for each in (switch, before, after))

    what = "1 ms of compute in 1 ms on one of 8 workers"
    assert first[what] != pytest.approx(second[what], rel=0.1)
    assert whole[what] == max(first[what], second[what])


def test_a_rate_that_an_event_raises_counts() -> None:
    """For a while the link is 4 Gbit/s: it must be kept then, too."""
    raised = {"kind": "link", "at": {"time": "1s"}, "of": ["worker-0"], "uplink": "4gbit", "downlink": "4gbit"}
    tested_scenario = make_scenario(STAR, dilation="auto", worker=GIGABIT, server={"uplink": "8gbit", "downlink": "8gbit"})

    needs = check(Scenario.decode(tested_scenario.encode() | {"events": [raised]})).demands[0].needs

    assert needs["worker-0's uplink of 4 Gbit/s"] == pytest.approx(4)
    assert needs["worker-1's uplink of 1 Gbit/s"] == pytest.approx(1)


def test_racks_are_shaped_too() -> None:
    """Their pipes carry what leaves them, at most what their members send: here 2 of 40 Gbit/s."""
    racks = {"kind": "racks", "size": 2, "uplink": "40gbit"}

    (tested_scenario,) = check(make_scenario(STAR, 4, "auto", worker=GIGABIT, server=GIGABIT, network=racks)).demands

    assert tested_scenario.needs["rack-1 up of 40 Gbit/s"] == pytest.approx(2)


def test_the_mathematics_of_all_workers_must_fit_into_forty_percent_of_the_cores() -> None:
    """Eight workers, 112 messages of a ring, 120 ms of CPU; a step of 16 ms on two cores has 12.8 ms for it."""
    (tested_scenario,) = check(make_scenario(workers=8, dilation=12, worker={"throughput": "1000/s"})).demands

    assert (tested_scenario.messages, tested_scenario.cpu_s) == (112, pytest.approx(0.120))
    assert max(tested_scenario.needs.values()) == pytest.approx(0.120 / (0.4 * 2 * 0.016))
    assert tested_scenario.required_dilation == 12


def test_auto_makes_what_messages_cost_the_host_a_tenth_of_the_step() -> None:
    """112 ms of CPU on two cores: the step of 16 ms must hold them ten times."""
    (tested_scenario,) = check(make_scenario(workers=8, dilation="auto", worker={"throughput": "1000/s"})).demands
    (declared,) = check(make_scenario(workers=8, dilation=12, worker={"throughput": "1000/s"})).demands

    assert max(tested_scenario.dilation_by_need.values()) == pytest.approx(0.056 / 0.0016)
    assert tested_scenario.required_dilation == 48
    assert declared.required_dilation == 12  # whoever declares one may find it precise enough


def test_mathematics_must_fit_into_what_the_devices_take_and_not_only_into_the_step() -> None:
    """Two workers' 1 ms in 1 ms of a device: behind links of 100 Mbit/s cores have time for it, but too late."""
    fast, slow = (
        make_scenario(workers=2, worker={"throughput": "16000/s", "uplink": rate, "downlink": rate})
        for rate in ("100mbit", "1mbit")
    )
    (late,), (hidden,) = demanded(fast), demanded(slow)
    (step,) = make_plans(fast)

    what = "1 ms of compute in 1 ms on one of 2 workers"
    assert late.needs[what] == pytest.approx(2.5 / (1 + 10 * step.predicted.step_s))
    assert late.required_dilation == 3
    assert hidden.needs[what] < 1, "what it is late by is nothing against a step of seconds"


def test_one_worker_computes_on_one_core() -> None:
    """However many there are: 1 ms of mathematics in 1 ms of a device is 0.8 of a core from 1.25 on."""
    (tested_scenario,) = demanded(make_scenario(workers=1, worker={"throughput": "16000/s"}), cores=64)

    assert tested_scenario.needs["1 ms of compute in 1 ms"] == pytest.approx(1.25 / 1.01)


@pytest.mark.parametrize(
    ("strategy", "updates"),
    [
        (RING, 4),
        ({"kind": "local_sgd", "period": 1}, 4),
        ({"kind": "easgd", "period": 2}, 4),
        (STAR, 1),
        (STAR | {"synchrony": {"kind": "backup", "backups": 2}}, 1),
        (STAR | {"synchrony": {"kind": "asp"}}, 4),
        (STAR | {"synchrony": {"kind": "gba", "gather": 2}}, 2),
    ],
    ids=str,
)
def test_an_update_costs_whoever_makes_it_as_often_as_a_step_has_updates(
    strategy: dict[str, Any], updates: int
) -> None:
    """Three milliseconds on two cores, beside four workers' messages: in a step of 16 ms."""
    dear = COMPUTE_1_MS._replace(update_s=lambda *_: 3e-3)
    (cheap,), (tested_scenario,) = (
        demanded(make_scenario(strategy, dilation="auto", worker={"throughput": "1000/s"}), each)
        for each in (COMPUTE_1_MS, dear)
    )

    assert tested_scenario.cpu_s - cheap.cpu_s == pytest.approx(updates * 3e-3)
    assert max(tested_scenario.wishes.values()) - max(cheap.wishes.values()) == pytest.approx(updates * 1.5e-3 / 1.6e-3)


@pytest.mark.parametrize(
    ("synchrony", "wish"),
    [({"kind": "bsp"}, None), ({"kind": "asp"}, 2.5), ({"kind": "ssp", "staleness": 2}, 2.5), ({"kind": "gba"}, 2.5)],
    ids=str,
)
def test_phases_of_workers_that_wait_for_nobody_last_40_ms_on_the_wall(
    synchrony: dict[str, Any], wish: float | None
) -> None:
    """Messages of others come while they compute; these last 16 ms. Who is in lockstep computes while nothing comes."""
    (tested_scenario,) = demanded(make_scenario(STAR | {"synchrony": synchrony}, dilation="auto", worker={"throughput": "1000/s"}))

    found = [dilation for what, dilation in tested_scenario.wishes.items() if "asynchronous workers" in what]
    assert found == ([] if wish is None else [pytest.approx(wish)])


@pytest.mark.parametrize(
    ("seldom", "often"),
    [({"kind": "local_sgd", "period": 23}, RING), ({"kind": "easgd", "period": 23}, STAR)],
    ids=["local_sgd", "easgd"],
)
def test_messages_of_seldom_exchanges_are_spread_over_the_steps_between(
    seldom: dict[str, Any], often: dict[str, Any]
) -> None:
    """An exchange has as many as one in every step; a step has what is left of them where one in 23 exchanges."""
    paced = {"throughput": "1000/s"}

    (tested_scenario,), (whole,) = (demanded(make_scenario(each, 4, worker=paced)) for each in (seldom, often))

    assert tested_scenario.messages == ceil(whole.messages / 23)


def demanded(tested_scenario: Scenario, needed: ComputeSpeed = COMPUTE_1_MS, cores: int = 2) -> tuple[TrialHostDemand, ...]:
    """On a host with so many cores."""
    big = host_capacity().model_copy(update={"fingerprint": HERE.model_copy(update={"cores": cores})})
    return check_plans(tested_scenario.model_copy(update={"dilation": "auto"}), make_plans(tested_scenario), big, needed).demands


def test_bytes_cost_cpu_time_too() -> None:
    """Sending them and adding them up."""
    paced = make_scenario(dilation="auto", worker={"throughput": "1000/s"})
    (plan,) = make_plans(paced)

    plain, dear = (check(paced, byte_cpu_s=cost, sum_s=cost).demands[0].cpu_s for cost in (0.0, 1e-8))

    assert dear - plain == pytest.approx(2e-8 * sum(plan.bytes_per_step.values()))


def test_workers_as_fast_as_the_host_are_never_refused_for_its_cores() -> None:
    """They take what is there and promise nothing."""
    (tested_scenario,) = check(make_scenario(workers=32), message_cpu_s=10.0).demands

    assert tested_scenario.needs == {}


def test_a_dilation_that_is_too_small_is_refused_with_the_one_that_fits() -> None:
    """And with what is overcommitted, by how much, and where that is known from."""
    tested_scenario = make_scenario(workers=8, dilation=2, worker={"throughput": "1000/s"})

    with pytest.raises(UserError) as refused:
        check(tested_scenario)

    assert str(refused.value) == (
        "dilation: 2 is too small for this host. Trial 000-it-w8-r0 needs "
        "120 ms of CPU time in a step of 16 ms on 2 cores, "
        "which this host provides from dilation 9.4 on (not calibrated: made up). "
        "Write dilation: 12 or dilation: auto, or use --engine simulated"
    )
    assert check(tested_scenario.model_copy(update={"dilation": 12.0})).demands[0].required_dilation == 12


def test_what_no_dilation_can_carry_is_refused_too() -> None:
    """Auto has an end."""
    with pytest.raises(UserError, match=f"no dilation up to {USUAL_DILATIONS[-1]} is enough"):
        check(make_scenario(dilation="auto", worker={"link": "100gbe"}), shaped_bps=1e6)


def test_all_trials_of_a_run_share_the_dilation_of_the_most_demanding() -> None:
    """Otherwise they could not be compared."""
    tested_scenario = make_scenario(dilation="auto", worker={"throughput": "1000/s"})
    swept = Scenario.decode(tested_scenario.encode() | {"sweep": {"workers": [1, 2, 8]}})

    admission = check(swept)

    assert [each.required_dilation for each in admission.demands] == [1, 2, 48]
    assert admission.dilation == 48


def test_a_measured_gradient_takes_some_time_and_is_measured_once() -> None:
    """Not none, and not the time of another batch."""
    (plan,) = make_plans(make_scenario())

    taken = measure_gradient_s(plan.dataset, plan.model, plan.dtype, 16)

    assert 0 < taken < 1
    assert measure_gradient_s(plan.dataset, plan.model, plan.dtype, 16) == taken


def test_a_measurement_counts_on_the_host_where_it_was_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another kernel, another engine: then it is as if nothing had been measured, and the record says why."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    local = create_engine("local")
    before = load_capacity(local)
    measured = before.model_copy(update={"calibrated": "2026-01-01", "note": "", "alpha_s": 0.123})

    save_capacity(measured)
    known = load_capacity(local)
    other = measured.fingerprint.model_copy(update={"kernel": "1.0", "cores": 77})
    save_capacity(measured.model_copy(update={"fingerprint": other}))
    strange = load_capacity(local)

    assert (before.calibrated, known) == ("", measured)
    assert (strange.calibrated, strange.note) == ("", "the stored measurement was made with another cores and kernel")
    assert strange.alpha_s == before.alpha_s


@pytest.mark.parametrize("text", ["", "[]", "{", '{"local grpc": {"alpha_s": "fast"}}'])
def test_a_broken_store_is_no_measurement(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is it a reason to stop."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "ensayo").mkdir()
    (tmp_path / "ensayo" / "capacity.json").write_text(text)

    assert load_capacity(create_engine("local")).calibrated == ""


def test_predictions_know_what_a_message_costs_only_where_it_was_measured() -> None:
    """In virtual time: sixteen times slower, a message costs a sixteenth. Six messages of a ring of four."""
    measured = host_capacity(alpha_s=0.016).model_copy(update={"calibrated": "2026-01-01"})
    tested_scenario = make_scenario(dilation=16.0)
    guess, known = (check_plans(tested_scenario, make_plans(tested_scenario), each, COMPUTE_1_MS) for each in (host_capacity(alpha_s=0.016), measured))
    (trial,) = tested_scenario.trials()

    without, with_it = (
        make_plan(trial, "run", "docker", InProcessAddresses(), alpha_s=each.message_alpha_s).predicted.step_s
        for each in (guess, known)
    )

    assert with_it - without == pytest.approx(6 * 0.001)


def test_shipped_scenarios_are_admitted_as_they_are_on_two_cores() -> None:
    """With what is assumed of a host that nobody has measured, and the mathematics of a small one."""
    two_cores, small = assumed_capacity("docker", HERE, "made up"), ComputeSpeed(small_host, measure_update_s)

    for name in ("quickstart", "two-servers", "scaling-check", "link-rate", "regression", "smoke", "thesis-containers"):
        loaded = load_scenario(find_scenario(name))
        made = [make_plan(trial, "run", "docker", InProcessAddresses()) for trial in loaded.trials()]
        admission = check_plans(loaded, made, two_cores, small)
        assert not any(each.exceeds_declared_dilation for each in admission.demands)


def small_host(_: AnyDataset, model: AnyModel, __: str, samples: int) -> float:
    """CPU seconds, measured on one core of an EPYC: at most 17 µs per sample, 255 for the convolutions of LeNet-5."""
    return (255e-6 if model.kind == "lenet5" else 17e-6) * samples


OVERCOMMITTED = """# Can a ring of eight machines with 25 Gbit/s be emulated?
name: overcommitted
workload:
  dataset: {kind: digits}
  model: {kind: linear}
  optimiser: {kind: sgd, rate: 0.1}
  batch: 64
  epochs: 1
cluster:
  workers: 2
  worker: {throughput: 1000/s, link: 25gbe}
strategies:
  ring: {kind: all_reduce}
baseline: false
"""


@pytest.mark.slow
def test_an_overcommitted_scenario_is_refused_and_runs_with_the_dilation_that_the_refusal_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2, nothing left behind; then the same file with --set dilation, and with auto."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file, runs = tmp_path / "overcommitted.yaml", tmp_path / "runs"
    file.write_text(OVERCOMMITTED)
    command = ["ensayo", "run", str(file), "--engine", "local", "--runs", str(runs), "--quiet"]

    monkeypatch.setattr("sys.argv", command)
    with pytest.raises(SystemExit) as refused:
        cli.main()
    said = capsys.readouterr().err
    named_dilation = said.partition("Write dilation: ")[2].partition(" ")[0]

    assert refused.value.code == 2
    assert "uplink of 25 Gbit/s" in said
    assert not runs.exists()

    monkeypatch.setattr("sys.argv", [*command, "--set", f"dilation={named_dilation}"])
    with pytest.raises(SystemExit):
        cli.main()
    (home,) = (runs / "overcommitted").iterdir()
    manifest = json.loads((home / "manifest.json").read_text())
    status = json.loads(next(home.glob("trials/*/status.json")).read_text())

    assert status["status"] == "success"
    assert manifest["admission"]["capacity"]["calibrated"] == ""
    assert manifest["admission"]["demands"][0]["declared"] == float(named_dilation)
    assert check_host_capacity(load_scenario(file, {"dilation": "auto"}), create_engine("local")).dilation == float(
        named_dilation
    )


def test_virtual_time_carries_everything() -> None:
    """Whatever is declared."""
    wide = make_scenario(dilation="auto", worker={"link": "100gbe"})

    admission = check_host_capacity(wide, create_engine("simulated"))

    assert (admission.capacity, admission.dilation) == (None, 1.0)
