"""Every synchroniser through one battery: nobody is held back for ever, waiting more never helps less."""

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from services.synchronisers import AnySynchroniser, Asp, Bsp, Synchroniser

EXAMPLES: list[Synchroniser] = [Bsp(), Asp()]

every_synchroniser = pytest.mark.parametrize("synchroniser", EXAMPLES, ids=lambda member: member.kind)
steps = st.integers(0, 1000)


def test_every_member_of_the_family_of_synchronisers_stands_in_the_table() -> None:
    """A synchroniser that is not in the table is not tested."""
    union, _ = get_args(AnySynchroniser)

    assert {type(synchroniser) for synchroniser in EXAMPLES} == set(get_args(union))


@every_synchroniser
def test_a_synchroniser_is_read_from_what_it_writes(synchroniser: Synchroniser) -> None:
    """A run's record holds the resolved components; the run must be repeatable from it."""
    assert TypeAdapter(AnySynchroniser).validate_json(synchroniser.model_dump_json()) == synchroniser


@every_synchroniser
@given(step=steps)
def test_the_slowest_worker_may_always_go_on(synchroniser: Synchroniser, step: int) -> None:
    """Otherwise everybody waits for somebody who waits: a deadlock."""
    assert synchroniser.may_start(step, slowest=step)


@every_synchroniser
@given(step=steps, slowest=steps)
def test_progress_of_the_slowest_never_takes_a_permission_away(
    synchroniser: Synchroniser, step: int, slowest: int
) -> None:
    """A waiting worker is woken by progress and by nothing else."""
    assert synchroniser.may_start(step, slowest) <= synchroniser.may_start(step, slowest + 1)


def test_bsp_holds_everybody_at_the_barrier() -> None:
    """Nobody is a step ahead of the slowest."""
    assert Bsp().may_start(step=3, slowest=3)
    assert not Bsp().may_start(step=4, slowest=3)


def test_asp_never_waits() -> None:
    """However far the others are behind."""
    assert Asp().may_start(step=1000, slowest=0)


@every_synchroniser
@given(workers=st.integers(1, 64))
def test_an_update_averages_no_more_gradients_than_there_are_workers(synchroniser: Synchroniser, workers: int) -> None:
    """A server that gathers more than can come waits for ever; one that gathers none never learns."""
    assert 1 <= synchroniser.gathers(workers) <= workers


def test_only_a_barrier_keeps_everybody_at_the_same_step() -> None:
    """Strategies without a server need it: replicas must hold the same parameters."""
    assert Bsp().lockstep
    assert not Asp().lockstep
