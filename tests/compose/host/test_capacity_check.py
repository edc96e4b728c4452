"""A trial that this host can't run is rejected before it starts, and the error names a dilation that is enough."""

import json
from collections.abc import Callable
from math import ceil
from pathlib import Path
from typing import Any

import pytest

from compose.calibration.capacity import (
    HostCapacity,
    HostFingerprint,
    assume_host_capacity,
    find_host_capacity,
    save_capacity,
)
from compose.engines import create_engine
from compose.host.capacity_check import CapacityCheck, check_host_can_run
from compose.host.compute_speed import CpuTimeFunctions, measure_gradient_cpu_s, measure_parameter_update_s
from compose.host.host_demand import USUAL_DILATIONS, TrialHostDemand, compute_host_demand
from compose.host.step_load import StepHostLoad, WorkerComputeTimes
from compose.runs.run import check_host_capacity
from compose.scenario_files.load import find_scenario, load_scenario
from ensayo import cli
from ensayo.terminal.terminal_text import host_capacity_lines
from services.cluster.addresses import DummyAddresses
from services.learning.datasets import AnyDataset
from services.learning.models import AnyModel
from services.plan import Plan, make_plan
from services.scenario.run_settings import EngineName
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


COMPUTE_1_MS = CpuTimeFunctions(gradient_s=lambda *_: 1e-3, update_s=lambda *_: 0.0)  # for every model and batch


def make_scenario(
    strategy: dict[str, Any] = RING,
    workers: int = 4,
    dilation: float | str = 1.0,
    payload: str | None = None,
    **cluster_settings: Any,
) -> Scenario:
    document = {
        "name": "wanted",
        "workload": {
            "dataset": {"kind": "digits"},
            "model": {"kind": "mlp", "hidden": [256, 128]},
            "optimiser": {"kind": "adam", "rate": 1e-3},
            "batch_per_worker": 16,
            "payload": payload,
        },
        "cluster": {"workers": workers, **cluster_settings},
        "strategies": {"it": strategy},
        "baseline": False,
        "dilation": dilation,
    }
    return Scenario.decode(document)


def make_plans(scenario: Scenario) -> list[Plan]:
    return [make_plan(trial, "run", "docker", DummyAddresses()) for trial in scenario.trials()]


def check_scenario(scenario: Scenario, **capacity_changes: float) -> CapacityCheck:
    return check_host_can_run(scenario, make_plans(scenario), host_capacity(**capacity_changes), COMPUTE_1_MS)


def test_links_that_this_host_can_shape_need_no_dilation() -> None:
    """Four links of 1 Gbit/s, all used at once, need less than 8 Gbit/s."""
    assert check_scenario(make_scenario(dilation="auto", worker=GIGABIT)).dilation == 1


def test_a_link_is_slowed_to_the_rate_that_this_host_can_shape() -> None:
    """The ratio of 25 Gbit/s to 1 Gbit/s is 25; the next of the usual dilations is 32."""
    check = check_scenario(make_scenario(dilation="auto", worker={"link": "25gbe"}), total_bps=1e12)

    assert check.dilation == 32
    assert check.most_demanding_trial is not None
    assert check.most_demanding_trial.bottleneck_text == "worker-0's uplink of 25 Gbit/s"
    assert check.most_demanding_trial.needs[check.most_demanding_trial.bottleneck_text] == pytest.approx(25)


def test_a_link_that_no_peers_can_fill_counts_with_the_arriving_rate() -> None:
    """Four workers with links of 1 Gbit/s send at most 4 Gbit/s into a port of 100 Gbit/s."""
    fast_link = {"uplink": "100gbit", "downlink": "100gbit"}

    needs = check_scenario(make_scenario(STAR, dilation="auto", worker=GIGABIT, server=fast_link)).demands[0].needs

    assert needs["server-0's downlink of 100 Gbit/s"] == pytest.approx(4)


def test_the_total_rate_of_all_links_counts() -> None:
    """A ring of eight workers uses all links at once: 8 times 1448/1514 Gbit/s of payload."""
    (demand,) = check_scenario(make_scenario(workers=8, dilation="auto", worker=GIGABIT), total_bps=1e9).demands

    assert max(demand.needs.values()) == pytest.approx(8 * 1448 / 1514)
    assert demand.bottleneck_text.startswith("all links together")


@pytest.mark.parametrize("engine", ["docker", "local"])
def test_bytes_of_a_declared_payload_need_cpu_time_where_they_are_sent(engine: EngineName) -> None:
    """A ring of two sends a vector per worker and step: 80 MB, 400 times the 200 kB of the trained model.

    Between processes, emulated links know the size of a message, and only the small model's bytes are sent. Sums are
    always those of the small model.
    """
    scenario = make_scenario(workers=2, dilation="auto", payload="20M x fp32", worker=GIGABIT | {"throughput": "100/s"})
    (plan,) = [make_plan(trial, "run", engine, DummyAddresses()) for trial in scenario.trials()]
    capacity = host_capacity(message_cpu_s=0.0, byte_cpu_s=1e-9, sum_s=1e-9)

    demand = compute_host_demand(plan, capacity, COMPUTE_1_MS, None)

    small_bytes = plan.parameters * 4
    assert plan.payload is not None
    moved_bytes = 80e6 if engine == "docker" else small_bytes
    assert demand.cpu_s == pytest.approx(2 * (1e-3 + 1e-9 * (moved_bytes + small_bytes)), rel=0.01)
    (total,) = (need for text, need in demand.needs.items() if text.startswith("all links together"))
    assert total == pytest.approx(2 * 1448 / 1514 / 8 * moved_bytes / 80e6, rel=1e-6)


def test_a_server_receives_at_most_the_rate_of_its_link() -> None:
    """Eight workers share one downlink: they send 1 Gbit/s in total, not 8."""
    (demand,) = check_scenario(make_scenario(STAR, 8, "auto", worker=GIGABIT, server=GIGABIT), total_bps=1e9).demands

    assert demand.needs["all links together, 0.956 Gbit/s"] == pytest.approx(1448 / 1514)


@pytest.mark.parametrize(("before", "after"), [(RING, STAR), (STAR, RING), (RING, {**RING, "collective": TREE})])
def test_a_strategy_switch_needs_the_capacity_of_both_strategies(before: dict[str, Any], after: dict[str, Any]) -> None:
    """A host that can carry only the first strategy would falsify the second phase."""
    switch = {"kind": "strategy_switch", "before": before, "after": after, "when": {"kind": "at", "epoch": 1}}
    paced_worker = GIGABIT | {"throughput": "1000/s"}

    demands = [
        check_scenario(make_scenario(strategy, 8, "auto", worker=paced_worker)).demands[0]
        for strategy in (switch, before, after)
    ]

    switch_demand, first_demand, second_demand = demands
    assert switch_demand.wishes == first_demand.wishes | second_demand.wishes
    assert max(switch_demand.needs.values()) == pytest.approx(
        max(*first_demand.needs.values(), *second_demand.needs.values())
    )
    assert switch_demand.cpu_s == max(first_demand.cpu_s, second_demand.cpu_s)


@pytest.mark.parametrize(("before", "after"), [(RING, STAR), (STAR, RING)])
def test_the_strategy_with_shorter_steps_decides_the_need_for_compute(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    """Steps behind one server's link are longer, so more compute may be late in them: they do not decide the need."""
    switch = {"kind": "strategy_switch", "before": before, "after": after, "when": {"kind": "at", "epoch": 1}}
    slow_link = {"uplink": "10mbit", "downlink": "10mbit"}
    cluster = {"worker": slow_link | {"throughput": "16000/s"}, "server": slow_link}

    switch_needs, first_needs, second_needs = (
        demands_on(make_scenario(strategy, 8, **cluster))[0].needs for strategy in (switch, before, after)
    )

    compute_need = "1 ms of compute in 1 ms on one of 8 workers"
    assert first_needs[compute_need] != pytest.approx(second_needs[compute_need], rel=0.1)
    assert switch_needs[compute_need] == max(first_needs[compute_need], second_needs[compute_need])


def test_a_rate_that_an_event_raises_counts_as_a_need() -> None:
    """The event raises the link to 4 Gbit/s for a while; the host must be able to shape that rate too."""
    raise_event = {"kind": "link", "at": {"time": "1s"}, "of": ["worker-0"], "uplink": "4gbit", "downlink": "4gbit"}
    scenario = make_scenario(STAR, dilation="auto", worker=GIGABIT, server={"uplink": "8gbit", "downlink": "8gbit"})

    needs = check_scenario(Scenario.decode(scenario.encode() | {"events": [raise_event]})).demands[0].needs

    assert needs["worker-0's uplink of 4 Gbit/s"] == pytest.approx(4)
    assert needs["worker-1's uplink of 1 Gbit/s"] == pytest.approx(1)


def test_the_uplinks_of_racks_count_as_needs() -> None:
    """A rack's uplink carries at most the traffic that its members send out of the rack: here 2 of 40 Gbit/s."""
    racks = {"kind": "racks", "size": 2, "uplink": "40gbit"}

    (demand,) = check_scenario(make_scenario(STAR, 4, "auto", worker=GIGABIT, server=GIGABIT, network=racks)).demands

    assert demand.needs["rack-1 up of 40 Gbit/s"] == pytest.approx(2)


def test_compute_of_all_workers_must_fit_into_forty_percent_of_the_cores() -> None:
    """Eight workers and 112 messages of a ring need 120 ms of CPU; a step of 16 ms on two cores has 12.8 ms."""
    (demand,) = check_scenario(make_scenario(workers=8, dilation=12, worker={"throughput": "1000/s"})).demands

    assert (demand.messages, demand.cpu_s) == (112, pytest.approx(0.120))
    assert max(demand.needs.values()) == pytest.approx(0.120 / (0.4 * 2 * 0.016))
    assert demand.min_time_dilation == 12


def test_auto_dilation_limits_the_cost_of_messages_to_a_tenth_of_the_step() -> None:
    """Messages cost 112 ms of CPU on two cores: the dilated step of 16 ms must be ten times as long."""
    (auto_demand,) = check_scenario(make_scenario(workers=8, dilation="auto", worker={"throughput": "1000/s"})).demands
    (declared_demand,) = check_scenario(make_scenario(workers=8, dilation=12, worker={"throughput": "1000/s"})).demands

    assert max(auto_demand.dilation_by_need.values()) == pytest.approx(0.056 / 0.0016)
    assert auto_demand.min_time_dilation == 48
    assert declared_demand.min_time_dilation == 12  # a user who declares a dilation may accept less precision


def test_compute_must_fit_into_the_device_time_and_not_only_into_the_step() -> None:
    """Two workers compute 1 ms in 1 ms of device time: behind links of 100 Mbit/s cores are free, but only later."""
    fast_scenario, slow_scenario = (
        make_scenario(workers=2, worker={"throughput": "16000/s", "uplink": rate, "downlink": rate})
        for rate in ("100mbit", "1mbit")
    )
    (fast_demand,), (slow_demand,) = demands_on(fast_scenario), demands_on(slow_scenario)
    (fast_plan,) = make_plans(fast_scenario)

    compute_need = "1 ms of compute in 1 ms on one of 2 workers"
    assert fast_demand.needs[compute_need] == pytest.approx(2.5 / (1 + 10 * fast_plan.predicted.step_s))
    assert fast_demand.min_time_dilation == 3
    assert slow_demand.needs[compute_need] < 1, "the lateness is small against a step of seconds"


def test_one_worker_computes_on_a_single_core() -> None:
    """64 cores do not help: 1 ms of compute in 1 ms of device time fits 0.8 of a core from dilation 1.25 on."""
    (demand,) = demands_on(make_scenario(workers=1, worker={"throughput": "16000/s"}), cores=64)

    assert demand.needs["1 ms of compute in 1 ms"] == pytest.approx(1.25 / 1.01)


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
def test_the_cpu_time_of_updates_counts_once_per_update_of_a_step(strategy: dict[str, Any], updates: int) -> None:
    """An update of 3 ms on two cores, beside the messages of four workers, in a step of 16 ms."""
    compute_with_updates = COMPUTE_1_MS._replace(update_s=lambda *_: 3e-3)
    (demand_without_updates,), (demand_with_updates,) = (
        demands_on(make_scenario(strategy, dilation="auto", worker={"throughput": "1000/s"}), compute_speed)
        for compute_speed in (COMPUTE_1_MS, compute_with_updates)
    )

    assert demand_with_updates.cpu_s - demand_without_updates.cpu_s == pytest.approx(updates * 3e-3)
    assert max(demand_with_updates.wishes.values()) - max(demand_without_updates.wishes.values()) == pytest.approx(
        updates * 1.5e-3 / 1.6e-3
    )


@pytest.mark.parametrize(
    ("synchrony", "wish"),
    [({"kind": "bsp"}, None), ({"kind": "asp"}, 2.5), ({"kind": "ssp", "staleness": 2}, 2.5), ({"kind": "gba"}, 2.5)],
    ids=str,
)
def test_compute_phases_of_asynchronous_workers_last_40_ms_of_wall_clock_time(
    synchrony: dict[str, Any], wish: float | None
) -> None:
    """Messages of other workers arrive while an asynchronous worker computes; the declared phases last 16 ms.

    A synchronous worker computes while no messages arrive.
    """
    (demand,) = demands_on(
        make_scenario(STAR | {"synchrony": synchrony}, dilation="auto", worker={"throughput": "1000/s"})
    )

    asynchronous_wishes = [
        dilation for description, dilation in demand.wishes.items() if "asynchronous workers" in description
    ]
    assert asynchronous_wishes == ([] if wish is None else [pytest.approx(wish)])


def test_power_sgd_sends_the_messages_of_two_rings() -> None:
    """Both factors are summed, one after the other, also after a switch."""
    paced_worker, low_rank = {"throughput": "1000/s"}, RING | {"compress": {"kind": "power_sgd"}}
    switch = {"kind": "strategy_switch", "before": STAR, "after": low_rank, "when": {"kind": "at", "epoch": 1}}
    server_switch = switch | {"after": RING}

    low_rank_demand, ring_demand = (
        demands_on(make_scenario(strategy, 8, worker=paced_worker))[0] for strategy in (low_rank, RING)
    )
    after_low_rank, after_ring = (
        demands_on(make_scenario(strategy, 8, worker=paced_worker))[0] for strategy in (switch, server_switch)
    )

    assert (low_rank_demand.messages, ring_demand.messages) == (224, 112)
    assert after_low_rank.cpu_s > after_ring.cpu_s


@pytest.mark.parametrize(
    ("rare", "every_step"),
    [({"kind": "local_sgd", "period": 23}, RING), ({"kind": "easgd", "period": 23}, STAR)],
    ids=["local_sgd", "easgd"],
)
def test_messages_of_rare_exchanges_are_spread_over_the_steps_between_them(
    rare: dict[str, Any], every_step: dict[str, Any]
) -> None:
    """An exchange sends as many messages as a step of the other strategy, but only one step in 23 has an exchange."""
    paced_worker = {"throughput": "1000/s"}

    (rare_demand,), (every_step_demand,) = (
        demands_on(make_scenario(strategy, 4, worker=paced_worker)) for strategy in (rare, every_step)
    )

    assert rare_demand.messages == ceil(every_step_demand.messages / 23)


def demands_on(
    scenario: Scenario, compute_speed: CpuTimeFunctions = COMPUTE_1_MS, cores: int = 2
) -> tuple[TrialHostDemand, ...]:
    """Return the demands of the scenario's trials on a host with this number of cores, with `dilation: auto`."""
    capacity = host_capacity().model_copy(update={"fingerprint": HERE.model_copy(update={"cores": cores})})
    return check_host_can_run(
        scenario.model_copy(update={"dilation": "auto"}), make_plans(scenario), capacity, compute_speed
    ).demands


def test_sending_and_adding_bytes_costs_cpu_time() -> None:
    scenario = make_scenario(dilation="auto", worker={"throughput": "1000/s"})
    (plan,) = make_plans(scenario)

    cpu_s_without_byte_costs, cpu_s_with_byte_costs = (
        check_scenario(scenario, byte_cpu_s=cost, sum_s=cost).demands[0].cpu_s for cost in (0.0, 1e-8)
    )

    assert cpu_s_with_byte_costs - cpu_s_without_byte_costs == pytest.approx(2e-8 * sum(plan.bytes_per_step.values()))


@pytest.mark.parametrize("period", [1, 23])
def test_workers_that_gather_compressed_vectors_add_the_whole_vectors_of_all_workers(period: int) -> None:
    """Four workers add four vectors each, although they send only a hundredth of the entries."""
    sparse = {"kind": "local_sgd", "period": period, "compress": {"kind": "top_k", "ratio": 0.01}}
    scenario = make_scenario(sparse, dilation="auto", worker={"throughput": "1000/s"})
    (plan,) = make_plans(scenario)

    without_sums, with_sums = (check_scenario(scenario, sum_s=cost).demands[0].cpu_s for cost in (0.0, 1e-8))

    assert with_sums - without_sums == pytest.approx(1e-8 * 16 * 4 * plan.parameters / period)


def test_workers_without_a_throughput_have_no_needs() -> None:
    """They run as fast as the host allows and promise no step time."""
    (demand,) = check_scenario(make_scenario(workers=32), message_cpu_s=10.0).demands

    assert demand.needs == {}


def test_compute_of_workers_on_a_gpu_is_not_limited_by_the_cpu() -> None:
    """A CPU that takes an hour for a gradient says nothing about the GPU that computes it."""
    slow_cpu = CpuTimeFunctions(gradient_s=lambda *_: 3600.0, update_s=lambda *_: 3600.0)
    scenario = make_scenario(workers=2, worker={"throughput": "1000/s", "device": "cuda"})

    (demand,) = check_host_can_run(scenario, make_plans(scenario), host_capacity(), slow_cpu).demands

    assert demand.compute_assumption == "a GPU is assumed to be fast enough for 2 workers with device: cuda"
    assert demand.gradient_cpu_s == 0


@pytest.mark.parametrize(("device", "line_count"), [("cuda", 1), ("auto", 0), ("cpu", 0)])
def test_the_plan_states_what_was_assumed_about_a_gpu_and_only_then(device: str, line_count: int) -> None:
    """A user of `ensayo plan` must not take the check for a measurement of the GPU."""
    scenario = make_scenario(workers=2, worker={"throughput": "1000/s", "device": device}, dilation=12)

    lines = [*host_capacity_lines(check_scenario(scenario), make_plans(scenario))]

    assert sum("a GPU is assumed to be fast enough for 2 workers" in line for line in lines) == line_count


def test_error_states_which_workers_were_checked_by_the_speed_of_the_cpu() -> None:
    """The CPU limits the workers on it, and the GPU was not measured."""
    groups = [{"name": "gpu", "ranks": [0], "device": "cuda"}]
    scenario = make_scenario(workers=2, groups=groups, worker={"throughput": "160000/s", "device": "cpu"})

    with pytest.raises(UserError, match="fast enough for 1 worker with device: cuda; gradients are timed on this CPU"):
        check_scenario(scenario)


def test_the_error_for_a_too_small_dilation_names_a_sufficient_one() -> None:
    """It also names the overcommitted resource, by how much it is exceeded, and the source of the host's capacity."""
    scenario = make_scenario(workers=8, dilation=2, worker={"throughput": "1000/s"})

    with pytest.raises(UserError) as error:
        check_scenario(scenario)

    assert str(error.value) == (
        "dilation: 2 is too small for this host. Trial 000-it-w8-r0 needs "
        "120 ms of CPU time in a step of 16 ms on 2 cores; on this host, a step may use 40% of the time of 2 cores. "
        "So the smallest sufficient dilation (slow-down of the run) is 9.4 "
        "(not calibrated: made up; gradients are timed on this CPU, also for device: auto). "
        "Write dilation: 12 at the top level of the scenario (rounded up to a usual value; the run takes 12 times as "
        "long as the emulated training, and its results do not change) or dilation: auto, or use --engine simulated"
    )
    assert check_scenario(scenario.model_copy(update={"dilation": 12.0})).demands[0].min_time_dilation == 12


@pytest.mark.parametrize(
    ("workers", "cores", "limit", "formula"),
    [
        (4, 2, "the 4 workers together may use 40% of the time of 2 cores", lambda share: 4 * share / (0.4 * 2)),
        (1, 64, "a worker may use 80% of the time of a core", lambda share: share / 0.8),
        (1, 1, "a worker may use 40% of the time of 1 core", lambda share: share / 0.4),
    ],
)
def test_the_limit_of_compute_explains_its_dilation(
    workers: int, cores: int, limit: str, formula: Callable[[float], float]
) -> None:
    """A reader can compute the dilation from the numbers: 9 ms of compute in 8 ms alone give another one."""
    phases = (WorkerComputeTimes(cpu_s=0.009, device_s=0.008),) * workers
    load = StepHostLoad(messages=0, compute_phases=phases, overhead_cpu_s=0.0, step_s=0.240, is_asynchronous=False)

    assert load.describe_compute_limit(cores) == f"{limit}, and compute may end late by 1% of a step of 240 ms"
    assert load.find_min_compute_dilation(cores) == pytest.approx(formula(9 / (8 + 0.01 * 240)))


def test_a_trial_that_no_dilation_makes_possible_is_rejected() -> None:
    """`dilation: auto` has a maximum."""
    with pytest.raises(UserError, match=f"no dilation up to {USUAL_DILATIONS[-1]} is enough"):
        check_scenario(make_scenario(dilation="auto", worker={"link": "100gbe"}), shaped_bps=1e6)


def test_all_trials_of_a_run_use_the_dilation_of_the_most_demanding_trial() -> None:
    """With different dilations they could not be compared."""
    scenario = make_scenario(dilation="auto", worker={"throughput": "1000/s"})
    swept_scenario = Scenario.decode(scenario.encode() | {"sweep": {"workers": [1, 2, 8]}})

    check = check_scenario(swept_scenario)

    assert [demand.min_time_dilation for demand in check.demands] == [1, 2, 48]
    assert check.dilation == 48


def test_the_time_of_a_gradient_is_positive_and_measured_only_once() -> None:
    (plan,) = make_plans(make_scenario())

    gradient_s = measure_gradient_cpu_s(plan.dataset, plan.model, plan.dtype, 16)

    assert 0 < gradient_s < 1
    assert measure_gradient_cpu_s(plan.dataset, plan.model, plan.dtype, 16) == gradient_s


def test_a_stored_measurement_counts_only_on_the_host_where_it_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With another kernel or engine the host counts as not measured, and the record says why."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    local = create_engine("local")
    assumed = find_host_capacity(local)
    measured = assumed.model_copy(update={"calibrated": "2026-01-01", "note": "", "alpha_s": 0.123})

    save_capacity(measured)
    loaded = find_host_capacity(local)
    other_fingerprint = measured.fingerprint.model_copy(update={"kernel": "1.0", "cores": 77})
    save_capacity(measured.model_copy(update={"fingerprint": other_fingerprint}))
    loaded_elsewhere = find_host_capacity(local)

    assert (assumed.calibrated, loaded) == ("", measured)
    assert (loaded_elsewhere.calibrated, loaded_elsewhere.note) == (
        "",
        "the stored measurement was made with another cores and kernel",
    )
    assert loaded_elsewhere.alpha_s == assumed.alpha_s


@pytest.mark.parametrize("text", ["", "[]", "{", '{"local grpc": {"alpha_s": "fast"}}'])
def test_a_broken_file_of_measurements_is_ignored(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It must not raise an error either."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "ensayo").mkdir()
    (tmp_path / "ensayo" / "capacity.json").write_text(text)

    assert find_host_capacity(create_engine("local")).calibrated == ""


def test_predictions_include_the_cost_of_messages_only_where_it_was_measured() -> None:
    """In virtual time with dilation 16, a message costs a sixteenth. A ring of four sends six messages in sequence."""
    measured_host = host_capacity(alpha_s=0.016).model_copy(update={"calibrated": "2026-01-01"})
    scenario = make_scenario(dilation=16.0)
    assumed_check, measured_check = (
        check_host_can_run(scenario, make_plans(scenario), capacity, COMPUTE_1_MS)
        for capacity in (host_capacity(alpha_s=0.016), measured_host)
    )
    (trial,) = scenario.trials()

    assumed_step_s, measured_step_s = (
        make_plan(trial, "run", "docker", DummyAddresses(), alpha_s=capacity_check.calibrated_alpha_s).predicted.step_s
        for capacity_check in (assumed_check, measured_check)
    )

    assert measured_step_s - assumed_step_s == pytest.approx(6 * 0.001)


def test_shipped_scenarios_need_no_change_on_a_host_with_two_cores() -> None:
    """The capacity is the one assumed for a host that was not measured; the compute speed is that of a slow host."""
    two_cores, slow_compute = (
        assume_host_capacity("docker", HERE, "made up"),
        CpuTimeFunctions(gradient_s_on_a_slow_core, measure_parameter_update_s),
    )

    for name in ("quickstart", "two-servers", "scaling-check", "link-rate", "regression", "smoke", "thesis-containers"):
        scenario = load_scenario(find_scenario(name))
        plans = [make_plan(trial, "run", "docker", DummyAddresses()) for trial in scenario.trials()]
        check = check_host_can_run(scenario, plans, two_cores, slow_compute)
        assert not any(demand.exceeds_declared_dilation for demand in check.demands)


def gradient_s_on_a_slow_core(_: AnyDataset, model: AnyModel, __: str, samples: int) -> float:
    """Return CPU seconds per gradient, measured on one core of an EPYC.

    A sample takes at most 17 µs, or 255 µs with the convolutions of LeNet-5.
    """
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
def test_a_rejected_scenario_runs_with_the_dilation_that_the_error_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The rejected run exits with code 2 and leaves no files; the file then runs with `--set dilation` or auto."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file, runs = tmp_path / "overcommitted.yaml", tmp_path / "runs"
    file.write_text(OVERCOMMITTED)
    command = ["ensayo", "run", str(file), "--engine", "local", "--runs", str(runs), "--quiet"]

    monkeypatch.setattr("sys.argv", command)
    with pytest.raises(SystemExit) as exit_error:
        cli.main()
    error_text = capsys.readouterr().err
    named_dilation = error_text.partition("Write dilation: ")[2].partition(" ")[0]

    assert exit_error.value.code == 2
    assert "uplink of 25 Gbit/s" in error_text
    assert not runs.exists()

    monkeypatch.setattr("sys.argv", [*command, "--set", f"dilation={named_dilation}"])
    with pytest.raises(SystemExit):
        cli.main()
    (run_folder,) = (runs / "overcommitted").iterdir()
    manifest = json.loads((run_folder / "manifest.json").read_text())
    status = json.loads(next(run_folder.glob("trials/*/status.json")).read_text())

    assert status["status"] == "success"
    assert manifest["admission"]["capacity"]["calibrated"] == ""
    assert manifest["admission"]["demands"][0]["declared"] == float(named_dilation)
    assert check_host_capacity(load_scenario(file, {"dilation": "auto"}), create_engine("local")).dilation == float(
        named_dilation
    )


def test_the_simulated_engine_accepts_every_scenario() -> None:
    scenario = make_scenario(dilation="auto", worker={"link": "100gbe"})

    check = check_host_capacity(scenario, create_engine("simulated"))

    assert (check.capacity, check.dilation) == (None, 1.0)
