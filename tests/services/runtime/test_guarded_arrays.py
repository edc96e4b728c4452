"""Tests of guarded arrays, by which code for GPUs is tested without a GPU: what they refuse, and what they allow."""

import ast
from collections.abc import Callable, Iterator
from importlib.metadata import requires
from pathlib import Path
from typing import Any

import guarded_arrays
import numpy as np
import pytest
from guarded_arrays import GuardedArray, GuardedDevice
from guarded_arrays.cupy_record import FUNCTIONS, RECORD
from guarded_arrays.namespace import SUBMODULES
from guarded_arrays.record_cupy import record_cupy
from packaging.requirements import Requirement
from simulated_trial import SimulatedTrial

import services
from services.learning.optimisers import Sgd
from services.runtime.device import ComputeDevice, CpuDevice
from services.schema.arrays import Vector, array_namespace
from services.strategies import AllReduce

DEVICE = GuardedDevice()
CPU = CpuDevice("a processor", "a test has chosen it")
HOST = np.arange(6.0).reshape(2, 3)
X = DEVICE.to_device(HOST)
XP = array_namespace(X)

REFUSED: list[tuple[str, Callable[[], Any], type[Exception]]] = [
    ("implicit copy to the host", lambda: np.asarray(X), TypeError),
    ("number from a whole array", lambda: float(X), TypeError),
    ("number of NumPy from an array", lambda: np.float32(X.sum()), TypeError),
    ("index of a list", lambda: [1, 2][XP.argmax(X)], TypeError),
    ("bytes", lambda: X.tobytes, TypeError),
    ("list", lambda: X.tolist, TypeError),
    ("memory address", lambda: X.data, TypeError),
    ("buffer", lambda: memoryview(X), TypeError),
    ("sum with the host on the right", lambda: X + HOST, TypeError),
    ("sum with the host on the left", lambda: HOST + X, TypeError),
    ("sum with a number in an array of the host", lambda: X + np.array(2.0), TypeError),
    ("product with a list", lambda: X * [1, 2, 3], TypeError),
    ("function of NumPy into the host", lambda: np.add(HOST, X, out=HOST), TypeError),
    ("assignment from the host", lambda: X.__setitem__(slice(None), HOST), TypeError),
    ("function of NumPy", lambda: np.exp(X), TypeError),
    ("function of NumPy for several arrays", lambda: np.concatenate([X, X]), TypeError),
    ("host in a function of the namespace", lambda: XP.maximum(X, HOST), TypeError),
    ("host in a list of arrays", lambda: XP.concatenate([X, HOST]), TypeError),
    ("list in place of an array", lambda: XP.sum([1.0, 2.0]), TypeError),
    ("list in an element-wise function", lambda: XP.exp([1.0, 2.0]), TypeError),
    ("function that CuPy lacks", lambda: XP.nanpercentile(X, 50), AttributeError),
    ("method that CuPy lacks", lambda: X.setflags(write=False), AttributeError),
    ("random method that CuPy lacks", lambda: XP.random.default_rng(0).permutation(3), AttributeError),
    ("global random state", lambda: XP.random.normal(size=3), AttributeError),
    ("parameter that CuPy lacks", lambda: XP.add(X, X, where=X > 1), TypeError),
    ("parameter of a method that CuPy lacks", lambda: X.max(initial=0.0), TypeError),
    ("random parameter that CuPy lacks", lambda: XP.random.default_rng(0).standard_normal(shape=3), TypeError),
    ("reduction that CuPy lacks", lambda: XP.maximum.reduce(X), NotImplementedError),
    ("scatter of a type that CuPy lacks", lambda: XP.subtract.at(X, 0, X), TypeError),
    ("array of repeats", lambda: X.repeat(XP.arange(3), axis=1), ValueError),
    ("text", lambda: DEVICE.to_device(np.array(["text"])), ValueError),
    ("two masks", lambda: X[X[:, 0] > 0, X[0] > 0], IndexError),
    ("two values for one place", lambda: X.copy().__setitem__(([0, 0],), X), ValueError),
]
ALLOWED: list[tuple[str, Callable[[], Any], Callable[[], Any]]] = [  # the same with guarded arrays and with NumPy
    ("numbers", lambda: 2 * X - np.float64(1) / (X + 1), lambda: 2 * HOST - 1 / (HOST + 1)),
    ("comparison", lambda: X >= 2, lambda: HOST >= 2),
    ("constant of the host", lambda: XP.asarray(HOST, "float32"), lambda: HOST.astype("float32")),
    ("index of the host", lambda: X[:, np.array([2, 0])], lambda: HOST[:, [2, 0]]),
    ("index of the device", lambda: X[XP.arange(2), XP.argmax(X, axis=1)], lambda: HOST[[0, 1], [2, 2]]),
    ("mask", lambda: X[X > 2], lambda: HOST[HOST > 2]),
    ("rows", lambda: sum(X), lambda: sum(HOST)),
    ("method", lambda: X.sum(axis=1, keepdims=True), lambda: HOST.sum(axis=1, keepdims=True)),
    ("function", lambda: XP.where(X > 1, X, 0), lambda: np.where(HOST > 1, HOST, 0)),
    ("module", lambda: XP.linalg.norm(X, axis=0), lambda: np.linalg.norm(HOST, axis=0)),
    (
        "views",
        lambda: XP.lib.stride_tricks.sliding_window_view(X, 2, axis=1).sum(-1),
        lambda: HOST[:, 1:] + HOST[:, :-1],
    ),
    ("same value at one place", lambda: _increase_twice(X.copy()), lambda: _increase_twice(HOST.copy())),
    ("scatter", lambda: _scatter(XP, X.copy()), lambda: _scatter(np, HOST.copy())),
    ("reduction", lambda: XP.add.reduce(X, axis=1), lambda: HOST.sum(axis=1)),
]


def _sum_windows(xp: Any, array: Any) -> Any:
    return xp.lib.stride_tricks.sliding_window_view(array, 2, axis=1).sum(-1)


def _increase_twice(array: Any) -> Any:
    array[[0, 0]] += 1
    return array


def _scatter(xp: Any, array: Any) -> Any:
    xp.add.at(array, ([0, 0, 1],), 1.0)
    return array


@pytest.mark.parametrize(("expression", "error"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_expression_that_fails_or_copies_on_a_gpu_is_refused(
    expression: Callable[[], Any], error: type[Exception]
) -> None:
    """Otherwise a test on the guarded device would pass for code that fails on a GPU."""
    with pytest.raises(error):
        expression()


@pytest.mark.parametrize(("guarded", "expected"), [case[1:] for case in ALLOWED], ids=[case[0] for case in ALLOWED])
def test_allowed_expression_has_the_result_of_numpy(guarded: Callable[[], Any], expected: Callable[[], Any]) -> None:
    """Results are arrays on the device, also single numbers, which NumPy returns as numbers of the host."""
    result = guarded()

    assert type(result) is GuardedArray
    np.testing.assert_array_equal(DEVICE.to_host(result), expected())


def test_arrays_of_device_and_host_share_no_memory() -> None:
    """On a GPU they never do: code that relies on it would compute with old values."""
    host = HOST.copy()
    on_device = DEVICE.to_device(host)
    copied_back = DEVICE.to_host(on_device)

    host += 1
    on_device += 10

    assert copied_back.tobytes() == HOST.tobytes()
    assert DEVICE.to_host(on_device).tobytes() == (HOST + 10).tobytes()


def test_random_numbers_differ_from_those_of_numpy() -> None:
    """CuPy draws other numbers from the same seed, so no test may expect equal ones on CPU and GPU."""
    guarded = DEVICE.to_host(XP.random.default_rng(5).standard_normal(3))

    assert (guarded != np.random.default_rng(5).standard_normal(3)).all()
    assert guarded.tobytes() == DEVICE.to_host(XP.random.default_rng(5).standard_normal(3)).tobytes()


PLANTED: dict[
    str, Callable[[Vector], Vector]
] = {  # violation -> change of a gradient that leaves its values as they are
    "implicit copy to the host": np.asarray,
    "array of the host in a sum": lambda grad: grad + np.zeros(len(grad), grad.dtype),
    "function of NumPy": lambda grad: np.clip(grad, -1e9, 1e9),
}
every_violation = pytest.mark.parametrize("change", PLANTED.values(), ids=PLANTED.keys())


@pytest.fixture
def plant_in_sgd(change: Callable[[Vector], Vector], monkeypatch: pytest.MonkeyPatch) -> None:
    """Plant a violation in the update rule of SGD."""
    update_params = Sgd.update_params
    monkeypatch.setattr(
        Sgd, "update_params", lambda self, params, grad, *rest: update_params(self, params, change(grad), *rest)
    )


@every_violation
@pytest.mark.usefixtures("plant_in_sgd")
def test_planted_violation_is_found_by_an_update_on_the_guarded_device_only() -> None:
    """On the CPU, all three give the right result: no other test would find them."""
    sgd = Sgd(rate=0.5)

    def update(device: ComputeDevice) -> Vector:
        params, grad = device.to_device(np.ones(3)), device.to_device(np.arange(3.0))
        return sgd.update_params(params, grad, sgd.init_state(params))[0]

    assert update(CPU).tolist() == [1.0, 0.5, 0.0]
    with pytest.raises(TypeError):
        update(DEVICE)


@every_violation
@pytest.mark.usefixtures("plant_in_sgd")
def test_planted_violation_is_found_by_a_whole_trial(use_guarded_device: Callable[[], None]) -> None:
    """The device of a trial's workers must be the guarded one everywhere."""
    workload = {"optimiser": {"kind": "sgd", "rate": 0.1}}
    SimulatedTrial.of(AllReduce(), 2, 2, 4, **workload)

    use_guarded_device()

    with pytest.raises(ExceptionGroup) as failure:
        SimulatedTrial.of(AllReduce(), 2, 2, 4, **workload)
    assert failure.group_contains(TypeError)


def test_names_of_the_package_do_not_hide_functions_of_cupy() -> None:
    """The package is the namespace: a module in it named `array` would be found instead of the function `array`."""
    assert not set(vars(guarded_arrays)) & set(FUNCTIONS)


def test_every_function_of_a_namespace_that_services_call_exists_in_cupy() -> None:
    """Also in code that no test runs on the guarded device."""
    used = {
        name: path.name
        for path in Path(services.__path__[0]).rglob("*.py")
        for name in find_namespace_members(ast.parse(path.read_text(encoding="utf-8")))
    }

    missing = {name: file for name, file in used.items() if name not in {*FUNCTIONS, *SUBMODULES}}
    assert {"exp", "lib.stride_tricks.sliding_window_view", "random.default_rng"} <= set(used)
    assert not missing


def test_functions_of_a_namespace_are_found_in_code() -> None:
    """A name that is bound to a namespace counts, also in a tuple."""
    code = """
def f(x):
    xp, y = array_namespace(x), 1
    module = array_namespace(y)
    return xp.exp(x) + module.lib.stride_tricks.as_strided(x) + array_namespace(x).log(y)
"""

    assert {"exp", "lib.stride_tricks.as_strided", "log"} <= set(find_namespace_members(ast.parse(code)))


def find_namespace_members(code: ast.AST) -> Iterator[str]:
    """Yield the dotted names of members of `array_namespace(...)`, directly or through a variable."""
    variables = {name for node in ast.walk(code) if isinstance(node, ast.Assign) for name in namespace_variables(node)}
    for node in ast.walk(code):
        names, owner = [], node
        while isinstance(owner, ast.Attribute):
            names.append(owner.attr)
            owner = owner.value
        is_variable = isinstance(owner, ast.Name) and owner.id in variables
        if names and (is_variable or is_namespace_call(owner)):
            yield ".".join(reversed(names))


def namespace_variables(assignment: ast.Assign) -> Iterator[str]:
    """Yield the variables to which an assignment binds a namespace."""
    for target in assignment.targets:
        targets, values = ([target], [assignment.value])
        if isinstance(target, ast.Tuple) and isinstance(assignment.value, ast.Tuple):
            targets, values = target.elts, assignment.value.elts
        for variable, value in zip(targets, values, strict=False):
            if isinstance(variable, ast.Name) and is_namespace_call(value):
                yield variable.id


def is_namespace_call(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "array_namespace"


def test_record_is_that_of_the_oldest_allowed_cupy() -> None:
    """Code that needs a newer version would fail for users of the oldest one."""
    (requirement,) = (Requirement(text) for text in requires("ensayo") or () if text.startswith("cupy"))

    assert f">={RECORD['version']}".startswith(str(requirement.specifier))


def test_record_equals_an_installed_cupy() -> None:
    """The record is that of the oldest allowed version; a newer one may have more, but nothing may be missing."""
    installed = record_cupy(pytest.importorskip("cupy"))

    for part in ("functions", "array_members", "generator_members"):
        assert set(RECORD[part]) <= set(installed[part])
