"""Hierarchy of the exceptions that Ensayo raises on purpose."""


class EnsayoError(Exception):
    """Base class of every error that Ensayo raises on purpose."""


class UserError(EnsayoError):
    """The user's file or arguments are wrong.

    The message says where, and what is allowed (exit code 2).
    """


class HostError(EnsayoError):
    """The host lacks something that a run needs (an engine, a tool, a permission).

    The message says how to get it.
    """


class NetworkError(EnsayoError):
    """Communication with another node failed."""


class PeerUnreachable(NetworkError):
    """Error because another node has refused or closed the connection.

    The message was not delivered.
    """


class DeadlineExceeded(NetworkError):
    """Error because another node did not reply before the deadline.

    Whether the message arrived is unknown.
    """


class AuthenticationError(NetworkError):
    """Error because one of two nodes does not accept the identity of the other node.

    Either the peer does not accept this node's identity, or this node does not accept the peer's.
    """


class MessageAuthenticationError(NetworkError):
    """Error because a message of a data stream has a wrong authentication tag.

    The message was altered, repeated, left out or reordered on its way. It is refused before it is decoded, and no
    later message of its stream can be verified.
    """


class NodeLossError(EnsayoError):
    """Error because a training can't go on without a node that was lost."""


class EvictedError(NetworkError):
    """Error because the coordinator has considered this node lost, and training goes on without it."""


class DeclaredNodeLoss(EnsayoError):
    """End of a trial because of a fault of nodes that the scenario declares.

    The message names the node and the event.
    """


class ProtocolError(EnsayoError):
    """Error because a message arrived that the protocol does not allow at this time.

    The message is not allowed in the current state. The error is a bug, not a condition to recover from.
    """


class CommandFailed(EnsayoError):
    """Error because the training command of the user can't be started, or has ended with an error."""


def os_error_cause(error: OSError) -> str:
    """Return the cause of an operating system error, such as "Permission denied", without its number and path."""
    return error.strerror or str(error)


def first_error_in_group(error: BaseException) -> BaseException:
    """Return the first exception inside nested exception groups.

    Return an exception outside of a group unchanged.
    """
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def is_caused_by_eviction(error: BaseException) -> bool:
    """Return whether a node has ended because it was evicted.

    Its connections to other nodes may have ended, too, so that other network errors may be in the same group.
    """
    if not isinstance(error, BaseExceptionGroup):
        return isinstance(error, EvictedError)
    has_only_network_errors = error.split(NetworkError)[1] is None
    return has_only_network_errors and error.subgroup(EvictedError) is not None
