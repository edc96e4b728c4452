"""Payload bytes that each node sends per step."""

from dataclasses import dataclass


@dataclass(frozen=True)
class BytesPerStep:
    """Mean payload bytes that each node sends per step.

    The means are not integers if nodes exchange vectors only every few steps.
    """

    workers: tuple[float, ...]  # by rank
    servers: tuple[float, ...] = ()  # by rank
    replies: tuple[float, ...] = ()  # by rank: bytes of a worker that are replies of its own shard to other workers

    def multiply(self, factor: int) -> "BytesPerStep":
        """Return the bytes of exchanges that send `factor` vectors of equal size instead of one."""
        products = (tuple(size * factor for size in sizes) for sizes in (self.workers, self.servers, self.replies))
        return BytesPerStep(*products)


def average_bytes_per_step(message_bytes: int, steps_per_message: int) -> float:
    """Return the mean bytes per step of a message that is not sent in every step.

    The message is sent every `steps_per_message` steps. The result is an int if the mean is whole.
    """
    quotient, remainder = divmod(message_bytes, steps_per_message)
    return message_bytes / steps_per_message if remainder else quotient
