"""Reservations of subnets for the networks of a run, against other runs of this host."""

import socket
from collections.abc import Iterable

NAME_PREFIX = "\0ensayo-subnet-"  # of abstract Unix sockets, which are no files


class SubnetReservations:
    """Subnets that no other process of this host may choose.

    The networks of a run exist only while a trial runs, so Docker does not know which addresses the next trial needs.
    A subnet is reserved by a socket of its name. The kernel releases it when this process ends, also if it is killed.
    """

    def __init__(self) -> None:
        """Create an empty set of reservations."""
        self._sockets: dict[str, socket.socket] = {}

    def reserve_first(self, subnets: Iterable[str], count: int) -> tuple[str, ...]:
        """Reserve the first subnets that no other process has reserved, and release all earlier reservations.

        Returns:
            `count` subnets, or fewer if there are not as many.
        """
        earlier, self._sockets = self._sockets, {}
        for subnet in subnets:
            if len(self._sockets) == count:
                break
            if reservation := earlier.pop(subnet, None) or _bind_socket(subnet):
                self._sockets[subnet] = reservation
        _close_all(earlier.values())
        return tuple(self._sockets)

    def release_all(self) -> None:
        """Release all reservations of this process."""
        _close_all(self._sockets.values())
        self._sockets = {}


def _bind_socket(subnet: str) -> socket.socket | None:
    """Return a socket with the name of a subnet; None if another process has one."""
    reservation = socket.socket(socket.AF_UNIX)
    try:
        reservation.bind(f"{NAME_PREFIX}{subnet}")
    except OSError:
        reservation.close()
        return None
    return reservation


def _close_all(sockets: Iterable[socket.socket]) -> None:
    for reservation in sockets:
        reservation.close()
