"""Scenarios and the trials that they define."""

from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from shipped_scenarios import load_or_skip

from compose.scenario_files.load import load_scenario, read_first_comment, shipped_scenario_paths
from services.scenario.scenario import Scenario, TrialSpec
from services.scenario.sweep import ScenarioDocument
from services.schema.errors import UserError

SMALL: ScenarioDocument = {
    "name": "small",
    "workload": {
        "dataset": {"kind": "digits"},
        "model": {"kind": "linear"},
        "optimiser": {"kind": "sgd", "rate": 0.1},
        "batch": 64,
    },
    "cluster": {"workers": 2, "groups": [{"name": "slow", "ranks": [1, 3], "throughput": "10/s"}]},
    "strategies": {
        "ring": {"kind": "all_reduce"},
        "ps": {"kind": "parameter_server"},
    },
}

every_shipped_scenario = pytest.mark.parametrize("path", shipped_scenario_paths(), ids=lambda path: path.stem)
workers = st.lists(st.integers(4, 16), min_size=1, max_size=3, unique=True)
rates = st.lists(st.integers(1, 9).map("{}mbit".format), min_size=1, max_size=3, unique=True)


def small_scenario(**changes: object) -> Scenario:
    return Scenario.decode(SMALL | changes)


def swept_scenario(**axes: object) -> Scenario:
    return small_scenario(
        sweep={"workers": [1, 2, 4]} | {name.replace("__", "."): values for name, values in axes.items()}
    )


@settings(deadline=None, max_examples=25)  # each example validates dozens of trials
@given(workers=workers, rates=rates, repeats=st.integers(1, 3), seed=st.integers(0, 99))
def test_the_same_scenario_gives_the_same_trials(workers: list[int], rates: list[str], repeats: int, seed: int) -> None:
    """A run can be repeated only if its trials follow from the file alone."""
    document = SMALL | {"sweep": {"workers": workers, "cluster.worker.uplink": rates}, "repeats": repeats, "seed": seed}

    first, second = (Scenario.decode(document).trials() for _ in range(2))

    assert first == second
    assert len({trial.id for trial in first}) == len(first) == repeats * len(rates) * (1 + 2 * len(workers))


@settings(deadline=None, max_examples=25)  # each example validates dozens of trials
@given(workers=workers, rates=rates)
def test_a_trial_is_unchanged_after_a_json_round_trip(workers: list[int], rates: list[str]) -> None:
    """Nodes read their plan from a file, and the file must lose nothing."""
    scenario = small_scenario(sweep={"workers": workers, "cluster.worker.uplink": rates})

    trial = scenario.trials()[-1]

    assert TrialSpec.model_validate_json(trial.model_dump_json()) == trial
    assert Scenario.decode(scenario.encode()) == scenario


def test_trials_are_ordered_by_baseline_strategy_workers_and_repeat() -> None:
    """The report has the same order; later trials are compared with the first ones."""
    ids = [trial.id for trial in small_scenario(sweep={"workers": [1, 4]}, repeats=2).trials()]

    assert ids == [
        "000-none-w1-r0",
        "001-none-w1-r1",
        "002-ring-w1-r0",
        "003-ring-w1-r1",
        "004-ring-w4-r0",
        "005-ring-w4-r1",
        "006-ps-w1-r0",
        "007-ps-w1-r1",
        "008-ps-w4-r0",
        "009-ps-w4-r1",
    ]


def test_repeats_use_the_same_seeds_under_every_strategy() -> None:
    """With different seeds, the comparison would measure chance instead of strategies."""
    seeds = {
        (trial.label, trial.repeat): trial.seed
        for trial in small_scenario(seed=7, repeats=2, cluster={"workers": 2}).trials()
    }

    assert {seed for (_, repeat), seed in seeds.items() if repeat == 1} == {8}


def test_a_trial_contains_its_own_values_and_no_sweep() -> None:
    """A trial alone must define what runs."""
    trial = swept_scenario(workload__batch=[32]).trials()[-1]

    assert trial.labels == {"workers": 4, "workload.batch": 32}
    assert (trial.scenario.cluster.workers, trial.scenario.workload.batch) == (4, 32)
    assert trial.scenario.trials()[0].scenario == trial.scenario


def test_a_key_of_one_strategy_is_swept_only_for_that_strategy() -> None:
    """A ring has no servers: running it for each number of servers would add no information."""
    trials = swept_scenario(strategies__ps__servers=[1, 2]).trials()

    assert [trial.label for trial in trials].count("ring") == 3
    assert [trial.label for trial in trials].count("ps") == 6


def test_a_setting_can_change_an_item_of_a_list(tmp_path: Path) -> None:
    """Groups, links and events are lists; `cluster.groups.0` is the first group."""
    file = tmp_path / "small.yaml"
    file.write_text(yaml.safe_dump(SMALL | {"cluster": {"workers": 4, "groups": SMALL["cluster"]["groups"]}}))

    scenario = load_scenario(file, {"cluster.groups.0.ranks": "[2]", "cluster.groups.0.throughput": "7/s"})

    assert [scenario.worker_spec(rank).throughput for rank in range(4)] == [None, None, 7.0, None]


@pytest.mark.parametrize("path", ["cluster.groups.1.ranks", "cluster.groups.x.ranks", "seed.more"])
def test_a_setting_with_an_unknown_path_names_the_unknown_part(path: str, tmp_path: Path) -> None:
    """A setting can't change an item that does not exist."""
    file = tmp_path / "small.yaml"
    file.write_text(yaml.safe_dump(SMALL | {"seed": 1}))

    with pytest.raises(UserError, match=f"--set {path}=1: '{path.split('.')[-2 if 'groups' in path else -1]}' "):
        load_scenario(file, {path: "1"})


def test_a_sweep_axis_with_several_paths_sets_them_together() -> None:
    """A link has two ends; separate axes would try combinations that do not occur in practice."""
    paths = ["cluster.worker.uplink", "cluster.server.uplink"]
    trials = small_scenario(sweep={"link": {"paths": paths, "values": ["1mbit", "2mbit"]}, "workers": [4]}).trials()

    assert [(trial.labels["link"], trial.scenario.cluster.server.uplink) for trial in trials[:2]] == [
        ("1mbit", 1e6),
        ("2mbit", 2e6),
    ]
    assert all(trial.scenario.worker_spec(0).uplink == trial.scenario.cluster.server.uplink for trial in trials)


def test_a_sweep_case_sets_several_keys_and_removes_others() -> None:
    """Strong and weak scaling differ in two keys; a sweep over each key would also try invalid combinations."""
    strong: dict[str, object] = {"workload.batch": 64}
    weak = {"workload.batch": None, "workload.batch_per_worker": 16}
    trials = small_scenario(
        sweep={"scaling": {"cases": {"strong": strong, "weak": weak}}, "workers": [4]}, baseline=False
    ).trials()

    actual = [
        (trial.label, trial.labels["scaling"], trial.scenario.workload.batch, trial.scenario.workload.batch_per_worker)
        for trial in trials
    ]
    assert actual == [(label, *case) for label in ("ring", "ps") for case in (("strong", 64, None), ("weak", None, 16))]
    assert trials[1].id == "001-ring-w4-weak-r0"


def test_groups_omit_ranks_beyond_the_number_of_workers() -> None:
    """A sweep over workers starts with fewer workers than the ranks that a group lists."""
    by_workers = {trial.labels["workers"]: trial.scenario for trial in swept_scenario().trials()}

    assert by_workers[1].cluster.groups == ()
    assert by_workers[2].cluster.groups[0].ranks == (1,)
    assert by_workers[4].worker_spec(3).throughput == 10
    assert by_workers[4].worker_spec(2).throughput is None


def test_the_global_batch_grows_with_the_workers_in_weak_scaling() -> None:
    """`batch_per_worker` fixes the share of each worker, `batch` the sum of all shares."""
    work = {key: value for key, value in SMALL["workload"].items() if key != "batch"} | {"batch_per_worker": 16}

    assert small_scenario(workload=work, cluster={}).workload.global_batch_size(4) == 64


def test_a_setting_replaces_a_key_and_its_sweep_axis(tmp_path: Path) -> None:
    """A user can try one value without editing the file; a key that is set is not swept."""
    path = tmp_path / "small.yaml"
    path.write_text(
        "# Q?\nname: small\nworkload: {dataset: {kind: digits}, model: {kind: linear}, "
        "optimiser: {kind: sgd, rate: 1e-3}, batch: 8}\n"
        "strategies: {ring: {kind: all_reduce}}\nsweep: {workers: [1, 2]}\n"
    )

    scenario = load_scenario(path, {"workers": "4", "cluster.worker.uplink": "1mbit"})

    assert (scenario.cluster.workers, scenario.cluster.worker.uplink, scenario.sweep) == (4, 1e6, {})
    with pytest.raises(UserError, match=r"^--set cluster.worker.uplink=1: cluster.worker.uplink: 1 has no unit"):
        load_scenario(path, {"cluster.worker.uplink": "1"})


@every_shipped_scenario
def test_every_shipped_scenario_loads_and_states_its_question(path: Path) -> None:
    """Shipped scenarios are the first ones that a new user runs."""
    scenario = load_or_skip(path)
    trials = scenario.trials()

    assert scenario.name == path.stem
    assert read_first_comment(path).endswith("?")
    assert path.read_text().startswith("# yaml-language-server: $schema=../docs/scenario.schema.json\n")
    extra_lines = max(0, len(scenario.strategies) - 18)  # a comparison of many needs a line for each
    assert len(path.read_text().splitlines()) <= 40 + extra_lines, "a scenario fits one screen"
    assert len({trial.scenario.model_dump_json() for trial in trials}) == len(trials)


def test_a_partition_with_too_many_shares_of_batches_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every process computes the shares of all workers before training starts."""
    monkeypatch.setattr("services.scenario.workload.MAX_PARTITION_SHARES", 40)
    workload = SMALL["workload"] | {"partition": {"kind": "shards"}, "dataset": {"kind": "digits", "seed": 7}}

    with pytest.raises(ValueError, match=r"2 workers in 23 steps per epoch have more than 40 shares of batches"):
        small_scenario(workload=workload, cluster={"workers": 2})
