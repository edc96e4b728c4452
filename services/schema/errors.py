"""The one tree of errors: what the user can fix, what the network did, what must never happen."""


class EnsayoError(Exception):
    """Root of every error that Ensayo raises on purpose."""


class UserError(EnsayoError):
    """The user's file or arguments are wrong; the message says where and what is allowed (exit code 2)."""


class HostError(EnsayoError):
    """This host lacks something that the run needs (an engine, a tool, a right); the message says how to get it."""


class NetworkError(EnsayoError):
    """A peer did not do what the protocol expects in time."""


class Unreachable(NetworkError):
    """The peer refused or closed the connection: the message was not delivered."""


class DeadlineExceeded(NetworkError):
    """No answer before the deadline: whether the message arrived is unknown."""


class Refused(NetworkError):
    """The peer does not accept who we are."""


class ProtocolError(EnsayoError):
    """A message that the state of the protocol does not allow: a bug, never a condition to recover from."""


def first(error: BaseException) -> BaseException:
    """The first error in a group of groups, which the others follow from; an error by itself."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
