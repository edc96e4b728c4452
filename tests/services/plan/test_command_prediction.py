"""Predicted bytes and step times of commands."""

import pytest
from command_plans import make_step_profile, plan_command

from services.collectives.halving_doubling import HalvingDoubling
from services.compressors.floating_point.fp16 import Fp16
from services.plan import CommandPlan
from services.plan.commands.command_prediction import payload_bytes_sent
from services.scenario.commands.step_profile import CollectiveCall, StepProfile, StepProfileOutcome
from services.strategies import CommandStrategy

MB = 1_000_000
LINK = {"uplink": "100mbit", "downlink": "100mbit"}
MB_S = 0.0837  # of 1 MB in an all-reduce of two ranks: 2 · S/2 at 100 Mbit/s, with headers


def plan_step(profile: StepProfile, step_s: float, **others: object) -> CommandPlan:
    worker = {"throughput": f"{1 / step_s:g}/s", **LINK}
    return plan_command(StepProfileOutcome(profile), worker, **others)  # type: ignore[arg-type]


def call(operation: str, size: int, ranks: int) -> CollectiveCall:
    return CollectiveCall(operation=operation, bytes=size, group_size=ranks)


@pytest.mark.parametrize(
    ("operation", "ranks", "process_group", "share"),
    [
        ("all_reduce", 4, "gloo", 1.5),
        ("all_reduce", 4, "ensayo", 1.5),
        ("reduce_scatter", 4, "gloo", 1.5),  # gloo runs an all-reduce
        ("reduce_scatter", 4, "ensayo", 0.75),
        ("all_gather", 4, "gloo", 3.0),
        ("all_to_all", 4, "gloo", 0.75),
        ("barrier", 4, "gloo", 0.0),
    ],
)
def test_bytes_of_a_collective_follow_the_usual_formulas(
    operation: str, ranks: int, process_group: str, share: float
) -> None:
    """The report compares them with what crossed the interface."""
    strategy = CommandStrategy(process_group=process_group)  # type: ignore[arg-type]
    runs_on_gloo = process_group == "gloo"

    sent = [payload_bytes_sent(call(operation, MB, ranks), strategy, ranks, 1, runs_on_gloo=runs_on_gloo)]

    assert sent == [share * MB]


def test_bytes_are_unknown_if_ranks_send_unequal_amounts() -> None:
    """The root of a broadcast sends more than others: a guess would make the comparison wrong."""
    plan = plan_step(make_step_profile(("all_reduce", MB), ("broadcast", 8), launch_shares=(0.5, 0.6)), 0.2)

    assert plan.bytes_per_step == {}


def test_bytes_of_ensayos_all_reduce_are_those_of_its_schedule_and_format() -> None:
    """Ranks of a schedule may send unequal amounts, and fp16 halves those of fp32."""
    sums = CollectiveCall(operation="all_reduce", bytes=1_200_000, dtype="float32", group_size=3)
    halving = CommandStrategy(process_group="ensayo", collective=HalvingDoubling())
    compressed = CommandStrategy(process_group="ensayo", compress=Fp16())

    assert [payload_bytes_sent(sums, halving, 3, rank, runs_on_gloo=False) for rank in range(3)] == [
        2_400_000,
        1_200_000,
        1_200_000,
    ]
    assert payload_bytes_sent(sums, compressed, 3, 0, runs_on_gloo=False) == 800_000
    assert (
        payload_bytes_sent(sums.model_copy(update={"dtype": "int64"}), compressed, 3, 0, runs_on_gloo=False)
        == 1_600_000
    )


def test_a_collective_after_the_whole_compute_is_exposed() -> None:
    """Nothing is left to compute while it runs."""
    plan = plan_step(make_step_profile(("all_reduce", MB), launch_shares=(1.0,)), 0.2)

    assert plan.predicted.compute_s == pytest.approx(0.2)
    assert plan.predicted.exchange_s == pytest.approx(MB_S, rel=0.01)


def test_a_collective_in_the_middle_of_the_compute_is_hidden() -> None:
    """DDP sends the gradients of the last layers while it computes those of the first."""
    plan = plan_step(make_step_profile(("all_reduce", MB), launch_shares=(0.5,), wait_shares=(0.95,)), 0.2)

    assert plan.predicted.exchange_s == 0.0


def test_collectives_wait_for_each_other() -> None:
    """One link carries both: the second starts when the first has ended."""
    profile = make_step_profile(("all_reduce", MB), ("all_reduce", MB), launch_shares=(0.9, 0.95))

    plan = plan_step(profile, 0.2)

    assert plan.predicted.step_s == pytest.approx(0.18 + 2 * MB_S + 0.01, rel=0.01), "0.01 s of compute follow"


def test_compute_between_the_wait_and_the_update_hides_nothing() -> None:
    """DDP waits for its last bucket at once; it copies the gradients, and updates, when it has them."""
    profile = make_step_profile(("all_reduce", MB), launch_shares=(0.8,), update_share=0.9)

    plan = plan_step(profile, 0.2)

    assert plan.predicted.step_s == pytest.approx(0.2 + MB_S, rel=0.01)


def test_a_synchronous_collective_delays_the_compute() -> None:
    """Fully sharded training waits for parameters before it computes with them."""
    profile = make_step_profile(
        ("all_gather", MB // 2), ("all_gather", MB // 2), launch_shares=(0.1, 0.6), is_asynchronous=False
    )

    plan = plan_step(profile, 0.2)

    assert plan.predicted.exchange_s == pytest.approx(MB_S, rel=0.01)


def test_the_slowest_worker_sets_the_compute_time() -> None:
    """Synchronous ranks wait for it; batch_per_worker converts samples per second to steps."""
    profile = make_step_profile(("all_reduce", MB), launch_shares=(1.0,))

    plan = plan_command(StepProfileOutcome(profile), {"throughput": "100/s", **LINK}, batch_per_worker=25)

    assert plan.predicted.compute_s == pytest.approx(0.25)
    assert plan.batch == 50


@pytest.mark.parametrize(
    ("profile", "reason"),
    [
        (make_step_profile(("broadcast", MB), launch_shares=(0.5,)), "broadcast has no closed form here"),
        (
            make_step_profile(("all_reduce", MB), launch_shares=(0.5,), group_size=4),
            "all_reduce among 4 of 2 ranks has no closed form here",
        ),
    ],
)
def test_steps_without_a_closed_form_say_why(profile: StepProfile, reason: str) -> None:
    """Their prediction is not compared with measurements."""
    assert plan_step(profile, 0.2).predicted.inapplicable_reason == reason


def test_a_command_without_a_profile_is_not_predicted() -> None:
    """A command of another framework can run, but nothing is known about it before."""
    plan = plan_command()

    assert plan.predicted.step_s == 0.0
    assert plan.predicted.inapplicable_reason == "worker-0 has no declared throughput"
    assert plan.bytes_per_step == {}


def broadcast_of(size: int, ranks: int, root_rank: int) -> CollectiveCall:
    return call("broadcast", size, ranks).model_copy(update={"root_rank": root_rank})


@pytest.mark.parametrize(
    ("process_group", "root_rank", "sent"),
    [
        ("gloo", 0, [3, 1, 0, 0, 0]),  # 0 to 1; 0 to 2, 1 to 3; 0 to 4
        ("gloo", 3, [0, 0, 0, 3, 1]),  # the same, three ranks on
        ("ensayo", 0, [3, 0, 1, 0, 0]),  # 0 to 4; 0 to 2; 0 to 1, 2 to 3
    ],
)
def test_bytes_of_a_broadcast_follow_its_tree(process_group: str, root_rank: int, sent: list[int]) -> None:
    """DDP broadcasts the statistics of batch normalisations in each step; n-1 ranks receive them once."""
    strategy = CommandStrategy(process_group=process_group)  # type: ignore[arg-type]
    runs_on_gloo, called = process_group == "gloo", broadcast_of(MB, 5, root_rank)

    by_rank = [payload_bytes_sent(called, strategy, 5, rank, runs_on_gloo=runs_on_gloo) for rank in range(5)]

    assert by_rank == [count * MB for count in sent]


def test_a_step_with_batch_normalisation_is_predicted() -> None:
    """0 B would claim that it exchanges nothing."""
    profile = make_step_profile(("broadcast", MB), ("all_reduce", MB), launch_shares=(0.0, 1.0), is_asynchronous=False)
    broadcasts = profile.collectives[0].model_copy(update={"root_rank": 0, "is_asynchronous": False})
    profile = profile.model_copy(update={"collectives": (broadcasts, profile.collectives[1])})

    plan = plan_step(profile, 0.2)

    assert plan.bytes_per_step == {"worker-0": 2 * MB, "worker-1": MB}
    assert plan.predicted.inapplicable_reason == ""
    assert plan.predicted.exchange_s == pytest.approx(2 * MB_S, rel=0.01)


@pytest.mark.parametrize(
    ("operation", "dtype", "seconds"),
    [
        ("all_reduce", "float32", 2 * MB_S),
        ("all_reduce", "float64", MB_S),
        ("all_reduce", "int64", 4 * MB_S),
        ("all_gather", "float32", 4 * MB_S),
        ("reduce_scatter", "float32", MB_S),
        ("reduce_scatter", "int64", 2 * MB_S),
        ("broadcast", "float32", 4 * MB_S),
    ],
)
def test_times_of_compressed_collectives_are_those_of_what_is_sent(operation: str, dtype: str, seconds: float) -> None:
    """Only sums of fp32 and fp64 are compressed; each moves 4 MB between two ranks, uncompressed."""
    called = call(operation, 4 * MB, 2).model_copy(
        update={"dtype": dtype, "root_rank": 0 if operation == "broadcast" else None, "is_asynchronous": False}
    )
    profile = make_step_profile((operation, 4 * MB), launch_shares=(1.0,), is_asynchronous=False)
    profile = profile.model_copy(update={"collectives": (called,)})

    plan = plan_step(profile, 0.2, strategy={"process_group": "ensayo", "compress": {"kind": "fp16"}})

    assert plan.predicted.exchange_s == pytest.approx(seconds, rel=0.01)


@pytest.mark.parametrize("operation", ["all_reduce", "reduce_scatter"])
@pytest.mark.parametrize(("reduction", "share"), [("sum", 0.5), ("avg", 0.5), (None, 0.5), ("max", 1), ("product", 1)])
def test_only_sums_and_means_are_predicted_as_compressed(operation: str, reduction: str | None, share: float) -> None:
    """The process group sends a maximum uncompressed, with twice the bytes and the time of a sum in fp16."""
    called = call(operation, 4 * MB, 2).model_copy(
        update={"dtype": "float32", "reduce_operation": reduction, "is_asynchronous": False}
    )
    profile = make_step_profile((operation, 4 * MB), launch_shares=(1.0,), is_asynchronous=False)
    strategy = {"process_group": "ensayo", "compress": {"kind": "fp16"}}

    plan = plan_step(profile.model_copy(update={"collectives": (called,)}), 0.2, strategy=strategy)

    parts = 2 if operation == "all_reduce" else 1
    assert plan.predicted.exchange_s == pytest.approx(parts * share * 2 * MB_S, rel=0.01)
    assert plan.bytes_per_step["worker-0"] == parts * share * 2 * MB
