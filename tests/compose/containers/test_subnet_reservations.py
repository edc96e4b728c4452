"""Subnets of parallel runs: no other process of this host chooses those of a run until it ends."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from compose.engines.containers.engine import DockerEngine
from compose.engines.containers.subnet_reservations import SubnetReservations

# Addresses that no engine chooses, so that runs on this host do not disturb the tests.
SUBNETS = [f"test.{number}" for number in range(6)]
PROGRAM = """
from compose.engines.containers.subnet_reservations import SubnetReservations
reservations = SubnetReservations()
print(*reservations.reserve_first({subnets}, 2), flush=True)
input()
"""


@contextmanager
def other_run() -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """Run a process that reserves two of the subnets; yield it with its subnets."""
    command = [sys.executable, "-c", PROGRAM.format(subnets=SUBNETS)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        try:
            yield process, process.stdout.readline().split()
        finally:
            process.kill()


def test_two_processes_reserve_different_subnets_and_a_killed_one_releases_its_own() -> None:
    """The kernel must release them: a killed run can't."""
    reservations = SubnetReservations()
    with other_run() as (process, subnets_of_other):
        subnets = reservations.reserve_first(SUBNETS, 2)
        process.kill()
        process.wait()
        subnets_afterwards = reservations.reserve_first(SUBNETS, 2)
    reservations.release_all()

    assert subnets_of_other == SUBNETS[:2]
    assert subnets == tuple(SUBNETS[2:4])
    assert subnets_afterwards == tuple(SUBNETS[:2])


def test_a_process_chooses_its_own_subnets_again_and_releases_others() -> None:
    """All trials of a run have the same addresses, and new ones only if Docker has kept a network."""
    reservations = SubnetReservations()
    first = reservations.reserve_first(SUBNETS, 2)
    again = reservations.reserve_first(SUBNETS, 2)
    without_kept = reservations.reserve_first(SUBNETS[1:], 2)
    with other_run() as (_, subnets_of_other):
        pass
    reservations.release_all()

    assert first == again == tuple(SUBNETS[:2])
    assert without_kept == tuple(SUBNETS[1:3])
    assert subnets_of_other == [SUBNETS[0], SUBNETS[3]]


def test_fewer_subnets_are_returned_if_there_are_not_as_many() -> None:
    """The engine then ends with a message."""
    reservations = SubnetReservations()

    assert reservations.reserve_first(SUBNETS[:1], 2) == (SUBNETS[0],)
    reservations.release_all()


@pytest.mark.docker
def test_two_engines_never_choose_the_same_subnets(docker_engine: DockerEngine) -> None:
    """Both have no network yet: their names would lead both to the same addresses."""
    other = DockerEngine()
    chosen, chosen_by_other = docker_engine.choose_addresses("run", 3), other.choose_addresses("run", 3)
    hosts = [
        address.host
        for addresses in (chosen, chosen_by_other)
        for address in (addresses.node_addresses(0).data, addresses.node_addresses(0).control)
    ]
    other.close()

    assert len(set(hosts)) == 4
