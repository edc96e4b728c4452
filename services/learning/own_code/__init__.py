"""Code of the user that nodes run: its record in a scenario, its contract, and its import.

user_code       file and name of a class or function of the user, with the digest and a copy of the code
contract        methods of a model that the user has written with NumPy
loading         import of the user's classes and functions, with errors at the user's lines
error_text      description of an error in the user's code
"""

from services.learning.own_code.contract import OwnModel
from services.learning.own_code.error_text import OwnCodeError, explain_own_errors
from services.learning.own_code.loading import (
    call_user_object,
    describe_definition,
    load_user_object,
    make_error,
    use_code_folder,
)
from services.learning.own_code.user_code import UserCode

__all__ = [
    "OwnCodeError",
    "OwnModel",
    "UserCode",
    "call_user_object",
    "describe_definition",
    "explain_own_errors",
    "load_user_object",
    "make_error",
    "use_code_folder",
]
