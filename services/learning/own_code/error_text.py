"""Errors in the user's code, described at the user's file and line."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from traceback import walk_tb
from types import TracebackType

from services.learning.own_code.user_code import UserCode
from services.schema.conflicts import KeyPath
from services.schema.errors import UserError
from services.schema.message_paths import path_for_messages


class OwnCodeError(UserError):
    """Error in the user's code, or in the keys of the scenario that describe it."""

    def __init__(self, key_path: KeyPath, message: str) -> None:
        """Create the error.

        Args:
            key_path: key to change, below the key of the model, such as `module`.
            message: file and line of the user, what is wrong, what is allowed.
        """
        super().__init__(message)
        self.key_path = key_path


@contextmanager
def explain_own_errors(code: UserCode, what: str, key: str = "module") -> Iterator[None]:
    """Convert errors that the user's code raises.

    Args:
        code: the user's class or function.
        what: what was called, such as `loss_and_gradients`, for the message.
        key: key of the model to which the error belongs.

    Raises:
        OwnCodeError: the code has raised an error; the message states the user's file and line.
    """
    try:
        yield
    except OwnCodeError:
        raise
    except (Exception, SystemExit) as error:  # a script of the user may end with sys.exit()
        raise OwnCodeError((key,), f"{place_of_error(code, error)}: {what} raised {describe_error(error)}") from error


def describe_error(error: BaseException) -> str:
    """Return type and message of an error in one line."""
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    message = " ".join(text.split())
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def place_of_error(code: UserCode, error: BaseException) -> str:
    """Return the user's file and line at which an error was raised; only the file if it was raised elsewhere."""
    line = _line_of_syntax_error(code, error) or _last_line_in_folder(code, error.__traceback__)
    return describe_place(code) if line is None else describe_place(code, *line)


def describe_place(code: UserCode, path: Path | None = None, line: int | None = None) -> str:
    """Return a place in the user's code for a message: file and line."""
    user_path = Path(code.file) if path is None else code.path_in_user_folder(path)
    text = path_for_messages(user_path)
    return text if line is None else f"{text}:{line}"


def _line_of_syntax_error(code: UserCode, error: BaseException) -> tuple[Path, int] | None:
    if not isinstance(error, SyntaxError) or error.filename is None or error.lineno is None:
        return None
    path = Path(error.filename)
    return (path, error.lineno) if code.contains(path) else None


def _last_line_in_folder(code: UserCode, traceback: TracebackType | None) -> tuple[Path, int] | None:
    """Return file and line of the innermost call in the user's folder; None if there is none."""
    places = [(Path(frame.f_code.co_filename), line) for frame, line in walk_tb(traceback)]
    return next((place for place in reversed(places) if code.contains(place[0])), None)
