"""Scenarios and their trials: what is written is what runs."""

from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

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

every_shipped = pytest.mark.parametrize("path", shipped_scenario_paths(), ids=lambda path: path.stem)
workers = st.lists(st.integers(4, 16), min_size=1, max_size=3, unique=True)
rates = st.lists(st.integers(1, 9).map("{}mbit".format), min_size=1, max_size=3, unique=True)


def small(**changes: object) -> Scenario:
    return Scenario.decode(SMALL | changes)


def swept(**axes: object) -> Scenario:
    return small(sweep={"workers": [1, 2, 4]} | {name.replace("__", "."): values for name, values in axes.items()})


@settings(deadline=None, max_examples=25)  # each example validates dozens of trials
@given(workers=workers, rates=rates, repeats=st.integers(1, 3), seed=st.integers(0, 99))
def test_the_same_scenario_gives_the_same_trials(workers: list[int], rates: list[str], repeats: int, seed: int) -> None:
    """A run can be repeated only if what runs follows from the file alone."""
    document = SMALL | {"sweep": {"workers": workers, "cluster.worker.uplink": rates}, "repeats": repeats, "seed": seed}

    once, again = (Scenario.decode(document).trials() for _ in range(2))

    assert once == again
    assert len({trial.id for trial in once}) == len(once) == repeats * len(rates) * (1 + 2 * len(workers))


@settings(deadline=None, max_examples=25)  # each example validates dozens of trials
@given(workers=workers, rates=rates)
def test_a_trial_survives_its_own_json(workers: list[int], rates: list[str]) -> None:
    """Nodes read their plan from a file: nothing may get lost on the way."""
    scenario = small(sweep={"workers": workers, "cluster.worker.uplink": rates})

    trial = scenario.trials()[-1]

    assert TrialSpec.model_validate_json(trial.model_dump_json()) == trial
    assert Scenario.decode(scenario.encode()) == scenario


def test_trials_come_as_baselines_then_strategies_then_workers_then_repeats() -> None:
    """The order is the order of the report; early trials are the ones to compare with."""
    ids = [trial.id for trial in small(sweep={"workers": [1, 4]}, repeats=2).trials()]

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
    """Otherwise luck would be compared instead of strategies."""
    seeds = {
        (trial.label, trial.repeat): trial.seed for trial in small(seed=7, repeats=2, cluster={"workers": 2}).trials()
    }

    assert {seed for (_, repeat), seed in seeds.items() if repeat == 1} == {8}


def test_a_trial_holds_its_own_values_and_nothing_left_to_sweep() -> None:
    """Whoever gets a trial needs nothing else to know what runs."""
    trial = swept(workload__batch=[32]).trials()[-1]

    assert trial.labels == {"workers": 4, "workload.batch": 32}
    assert (trial.scenario.cluster.workers, trial.scenario.workload.batch) == (4, 32)
    assert trial.scenario.trials()[0].scenario == trial.scenario


def test_a_key_of_one_strategy_is_swept_for_that_strategy_alone() -> None:
    """Servers mean nothing to a ring: running it again for each number of them would tell nothing."""
    trials = swept(strategies__ps__servers=[1, 2]).trials()

    assert [trial.label for trial in trials].count("ring") == 3
    assert [trial.label for trial in trials].count("ps") == 6


def test_a_setting_reaches_into_lists(tmp_path: Path) -> None:
    """Groups, links and events are lists; the third worker is `cluster.groups.0.ranks`."""
    file = tmp_path / "small.yaml"
    file.write_text(yaml.safe_dump(SMALL | {"cluster": {"workers": 4, "groups": SMALL["cluster"]["groups"]}}))

    scenario = load_scenario(file, {"cluster.groups.0.ranks": "[2]", "cluster.groups.0.throughput": "7/s"})

    assert [scenario.worker_spec(rank).throughput for rank in range(4)] == [None, None, 7.0, None]


@pytest.mark.parametrize("path", ["cluster.groups.1.ranks", "cluster.groups.x.ranks", "seed.more"])
def test_a_setting_that_leads_nowhere_says_where_it_ends(path: str, tmp_path: Path) -> None:
    """An item that is not there can't be changed."""
    file = tmp_path / "small.yaml"
    file.write_text(yaml.safe_dump(SMALL | {"seed": 1}))

    with pytest.raises(UserError, match=f"--set {path}=1: '{path.split('.')[-2 if 'groups' in path else -1]}' "):
        load_scenario(file, {path: "1"})


def test_an_axis_with_paths_sets_them_together() -> None:
    """A link has two ends; sweeping them apart would try combinations that nobody builds."""
    paths = ["cluster.worker.uplink", "cluster.server.uplink"]
    trials = small(sweep={"link": {"paths": paths, "values": ["1mbit", "2mbit"]}, "workers": [4]}).trials()

    assert [(t.labels["link"], t.scenario.cluster.server.uplink) for t in trials[:2]] == [
        ("1mbit", 1e6),
        ("2mbit", 2e6),
    ]
    assert all(t.scenario.worker_spec(0).uplink == t.scenario.cluster.server.uplink for t in trials)


def test_a_case_sets_several_keys_and_takes_others_away() -> None:
    """Strong and weak scaling differ in two keys; a sweep over each of them would try combinations without sense."""
    strong: dict[str, object] = {"workload.batch": 64}
    weak = {"workload.batch": None, "workload.batch_per_worker": 16}
    trials = small(
        sweep={"scaling": {"cases": {"strong": strong, "weak": weak}}, "workers": [4]}, baseline=False
    ).trials()

    found = [
        (t.label, t.labels["scaling"], t.scenario.workload.batch, t.scenario.workload.batch_per_worker) for t in trials
    ]
    assert found == [(label, *case) for label in ("ring", "ps") for case in (("strong", 64, None), ("weak", None, 16))]
    assert trials[1].id == "001-ring-w4-weak-r0"


def test_groups_shrink_with_the_cluster() -> None:
    """A sweep over workers starts below the ranks that a group names."""
    by_workers = {trial.labels["workers"]: trial.scenario for trial in swept().trials()}

    assert by_workers[1].cluster.groups == ()
    assert by_workers[2].cluster.groups[0].ranks == (1,)
    assert by_workers[4].worker_spec(3).throughput == 10
    assert by_workers[4].worker_spec(2).throughput is None


def test_weak_scaling_grows_the_batch_with_the_workers() -> None:
    """`batch_per_worker` keeps each worker's share, `batch` the sum."""
    work = {key: value for key, value in SMALL["workload"].items() if key != "batch"} | {"batch_per_worker": 16}

    assert small(workload=work, cluster={}).workload.global_batch_size(4) == 64


def test_a_key_can_be_set_without_another_file(tmp_path: Path) -> None:
    """Trying one value should not need an editor; a key that is set is not swept."""
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


@every_shipped
def test_every_shipped_scenario_loads_and_answers_one_question(path: Path) -> None:
    """They are the first thing that anybody runs."""
    scenario = load_scenario(path)
    trials = scenario.trials()

    assert scenario.name == path.stem
    assert read_first_comment(path).endswith("?")
    assert path.read_text().startswith("# yaml-language-server: $schema=../docs/scenario.schema.json\n")
    beyond = max(0, len(scenario.strategies) - 18)  # who compares that many needs a line for each
    assert len(path.read_text().splitlines()) <= 40 + beyond, "a scenario fits one screen"
    assert len({trial.scenario.model_dump_json() for trial in trials}) == len(trials)
