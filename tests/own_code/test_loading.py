"""Import of the user's code: names, neighbours, edits, prints and errors while a node computes."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from compose.own_code.files import digest_code, read_code_files
from services.learning.datasets import LearningTask
from services.learning.models import PythonModel
from services.learning.own_code import OwnCodeError, UserCode, load_user_object

NUMBERS = LearningTask(inputs=(5,), outputs=3, loss="mse")


def code_in(folder: Path, name: str = "value", file_name: str = "mine.py") -> UserCode:
    """Return the reference to a name in the folder, in its present state."""
    digest = digest_code(read_code_files("module", folder))
    return UserCode(file=str(folder / file_name), name=name, sha256=digest, folder=str(folder))


def write(folder: Path, **files: str) -> Path:
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        (folder / f"{name}.py").write_text(content)
    return folder


def test_folders_may_have_files_of_the_same_name(tmp_path: Path) -> None:
    """A notebook edits its files and runs again; each digest has its own folder."""
    for number in (1, 2, 3):
        folder = write(tmp_path / str(number), mine="from neighbour import value", neighbour=f"value = {number}")

        assert load_user_object(code_in(folder)) == number


def test_only_the_folder_in_use_is_on_the_path(tmp_path: Path) -> None:
    """Files of an earlier model must not be found in place of missing ones."""
    first = write(tmp_path / "first", mine="from neighbour import value", neighbour="value = 1")
    second = write(tmp_path / "second", mine="from neighbour import value")
    load_user_object(code_in(first))

    with pytest.raises(OwnCodeError, match=r"mine\.py:1: ModuleNotFoundError: No module named 'neighbour'"):
        load_user_object(code_in(second))

    assert str(first) not in sys.path


def test_files_of_the_user_do_not_replace_installed_packages(tmp_path: Path) -> None:
    """Ensayo's own imports, later in the process, must find the installed packages."""
    folder = write(tmp_path / "mine", mine="import numpy\nvalue = numpy.__file__", numpy="raise SystemExit")

    assert load_user_object(code_in(folder)) == np.__file__


def test_a_file_named_like_an_installed_package_can_be_the_model(tmp_path: Path) -> None:
    """The module has a name of its own in the process."""
    folder = write(tmp_path / "mine", json="value = 4")

    assert load_user_object(code_in(folder, file_name="json.py")) == 4
    assert sys.modules["json"].__file__ != str(folder / "json.py")


def test_a_failed_import_is_tried_again(tmp_path: Path) -> None:
    """A half-imported module would lack the class without showing the error again."""
    folder = write(tmp_path / "mine", mine="value = 1\nraise ValueError('not yet')")
    for _ in range(2):
        with pytest.raises(OwnCodeError, match=r"mine\.py:2: ValueError: not yet"):
            load_user_object(code_in(folder))


def test_a_relative_import_is_explained(tmp_path: Path) -> None:
    """The folder is no package."""
    folder = write(tmp_path / "mine", mine="from .neighbour import value", neighbour="value = 1")

    with pytest.raises(OwnCodeError, match="import files of the folder by their names, without a dot"):
        load_user_object(code_in(folder))


def test_dataclasses_of_the_user_work(tmp_path: Path) -> None:
    """A dataclass looks its module up in `sys.modules`."""
    text = (
        "from __future__ import annotations\nimport dataclasses\n@dataclasses.dataclass\nclass value:\n    x: int = 3"
    )

    assert load_user_object(code_in(write(tmp_path / "mine", mine=text)))().x == 3


def test_code_without_a_digest_is_not_imported() -> None:
    """A scenario that was not loaded does not state which code runs."""
    with pytest.raises(OwnCodeError, match="the code is unknown; load the scenario with load_scenario"):
        load_user_object(UserCode(file="mine.py", name="Model"))


def test_prints_of_the_user_do_not_reach_the_standard_output(tmp_path: Path) -> None:
    """The standard output of a node is its log."""
    code = code_in(write(tmp_path / "mine", mine="print('hello')\nvalue = 1"))
    script = (
        "import sys; from services.learning.own_code import UserCode, load_user_object;"
        "load_user_object(UserCode.model_validate_json(sys.argv[1]))"
    )

    command = [sys.executable, "-c", script, code.model_dump_json()]
    printed = subprocess.run(command, check=True, capture_output=True, text=True)

    assert (printed.stdout, printed.stderr) == ("", "hello\n")


RAISES_LATER = """
class Model:
    def __init__(self, inputs, outputs):
        pass

    def parameter_shapes(self):
        return {"weight": (2,)}

    def init_parameters(self, rng):
        return {"weight": rng.standard_normal(2)}

    def loss_and_gradients(self, params, x, y, rng):
        if len(x) > 4:
            return divide(len(x), 0), params
        return 1.0, params

    def outputs(self, params, x):
        return x


def divide(a, b):
    return a / b
"""


def test_an_error_during_training_names_the_users_line(tmp_path: Path) -> None:
    """Code may fail only for some batches, which the check before the start does not see."""
    own = write(tmp_path / "own", mine=RAISES_LATER)
    copy = write(tmp_path / "copy", mine=RAISES_LATER)
    module = code_in(copy, "Model").model_copy(update={"file": str(own / "mine.py")})
    model = PythonModel(module=module)
    x, params = np.zeros((5, 5)), np.zeros(2)

    with pytest.raises(OwnCodeError) as raised:
        model.loss_and_grad(NUMBERS, params, x, np.zeros((5, 3)))

    line = RAISES_LATER.splitlines().index("    return a / b") + 1
    message = f"{own / 'mine.py'}:{line}: loss_and_gradients raised ZeroDivisionError: division by zero"
    assert str(raised.value) == message


def test_the_check_of_the_gradient_can_be_disabled(tmp_path: Path) -> None:
    """A straight-through estimator is no gradient of the loss, on purpose; the plan records the key."""
    text = RAISES_LATER.replace("return x", "return x[:, :3]").replace("> 4", "> 400")
    module = code_in(write(tmp_path / "mine", mine=text), "Model")

    with pytest.raises(OwnCodeError, match="the gradient does not fit the loss"):
        PythonModel(module=module).unsupported_task_reason(NUMBERS)
    model = PythonModel(module=module, check_gradient=False)
    assert model.unsupported_task_reason(NUMBERS) is None
    assert model.model_dump()["check_gradient"] is False
