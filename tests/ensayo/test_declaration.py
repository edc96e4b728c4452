"""Scenarios that are declared with keywords, and classes and functions of notebooks and scripts."""

import inspect
import linecache
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from data_files import scenario_of
from programs.notebooks import run_cells

import ensayo
from ensayo.declaration import sections
from ensayo.declaration.code_references import reference_to
from services.cluster.cluster import Cluster, ServerSpec, WorkerSpec
from services.cluster.network import NodePairLink
from services.schema.errors import UserError

pytestmark = pytest.mark.without_nodes

SHORT: dict[str, Any] = {
    "model": "linear",
    "dataset": "linnerud",
    "batch": 4,
    "epochs": 1,
    "cluster": ensayo.Cluster(worker=ensayo.Worker(throughput="1000/s")),
    "strategies": ["all_reduce"],
}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the cache of this test, for code and prepared data."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "cache" / "ensayo"


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return a function that runs the text of a cell in `__main__`, and returns the namespace."""
    main = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", main)
    names = []

    def run_cell(source: str) -> Any:
        name = f"<cell {len(names)}>"
        names.append(name)
        linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
        exec(compile(source, name, "exec"), vars(main))  # noqa: S102 - as a notebook does
        return main

    yield run_cell
    for name in names:
        del linecache.cache[name]


@pytest.mark.parametrize(
    ("section", "record"),
    [
        (sections.Cluster, Cluster),
        (sections.Worker, WorkerSpec),
        (sections.Server, ServerSpec),
        (sections.Link, NodePairLink),
    ],
)
def test_sections_have_the_keys_of_a_scenario(section: type, record: Any) -> None:
    """Editors complete the keys; a key that is missing here would have no completion."""
    parameters = {
        name
        for base in section.__mro__
        if base in vars(sections).values() and base is not sections.ScenarioSection
        for name, parameter in inspect.signature(base.__init__).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    }

    assert parameters == set(record.model_fields)


def test_keywords_declare_the_scenario_that_a_file_would_have() -> None:
    """The check of the scenario is the same."""
    declared = ensayo.load(
        ensayo.declare(
            name="mine",
            baseline=False,
            dataset="linnerud",
            model="linear",
            optimiser={"kind": "sgd", "rate": 0.05},
            batch=8,
            epochs=2,
            cluster=ensayo.Cluster(worker=ensayo.Worker(throughput="1000/s"), workers=2),
            strategies={"ring": "all_reduce"},
        )
    )

    assert declared == ensayo.load(scenario_of({"kind": "linnerud"}))


def test_a_list_of_workers_is_swept() -> None:
    """The points of a speedup curve."""
    frame = ensayo.plan(ensayo.declare(**SHORT, workers=(2, 4)), "simulated")

    assert sorted(frame["workers"]) == [1, 2, 4]


def test_rehearse_returns_speedup_curves_and_draws_them(tmp_path: Path) -> None:
    """The result is that of a scenario file."""
    result = ensayo.rehearse(**SHORT, workers=[2, 4], engine="simulated", runs_folder=tmp_path / "runs")

    assert result.verdict == "valid", result.reasons
    assert result.folder.parent.name == "linear"
    assert {2, 4} <= set(result.curves["workers"])
    assert result.plot().axes


MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "unknown key": ({"modle": "linear"}, r"there is no key modle; allowed are .*; did you mean model\?"),
    "unknown key of a section": (
        {"cluster": ensayo.Cluster(worker=ensayo.Worker(uplnk="1mbit"))},
        r"scenario dict: cluster\.worker\.uplnk: unknown key; allowed keys are .*; did you mean uplink\?",
    ),
    "no unit": (
        {"cluster": ensayo.Cluster(worker=ensayo.Worker(uplink="100"))},
        r"scenario dict: cluster\.worker\.uplink: '100' is not a rate",
    ),
    "unknown strategy": ({"strategies": ["al_reduce"]}, r"strategies\.al_reduce"),
    "strategy twice": ({"strategies": ["none", "none"]}, "strategies: 'none' is in the list twice; write a dict of"),
    "strategy without kind": ({"strategies": [{"servers": 2}]}, "has no kind; write a dict of"),
    "object": ({"model": object()}, r"model: an object of object can't be used; write a kind, such as \"lenet5\""),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_reported_as_in_a_scenario_file(name: str) -> None:
    """The message states the key and what is allowed; nothing was started."""
    keys, message = MISTAKES[name]

    with pytest.raises(UserError, match=message):
        ensayo.rehearse(**(SHORT | keys), engine="simulated")
    assert not Path("runs").exists()


@pytest.mark.parametrize("scenario", [None, "smoke"])
def test_a_scenario_or_keywords_are_needed_but_not_both(scenario: str | None) -> None:
    """Keywords would silently replace keys of the scenario."""
    keys = SHORT if scenario else {}

    with pytest.raises(UserError, match="rehearse needs either a scenario, or the keys of one"):
        ensayo.rehearse(scenario, **keys)


CELL = """
from math import sqrt

import numpy as np
import numpy.linalg as la

COUNT, SCALE, NAMES = 40, {"x": 0.5}, ["a"]
unused = object()


def squares(x):
    return x**2


def load(factor=SCALE["x"]):
    rng = np.random.default_rng(len(NAMES))
    x = rng.normal(size=(COUNT, 3))
    return x, squares(x).sum(axis=1) * sqrt(factor) / la.norm([1.0])
"""


def test_a_function_of_a_cell_is_written_with_what_it_uses(notebook: Any, tmp_path: Path) -> None:
    """Imports, constants and other functions; nothing else of the notebook."""
    load = notebook(CELL).load
    result = ensayo.rehearse(
        **(SHORT | {"dataset": load}), workers=2, engine="simulated", runs_folder=tmp_path / "runs"
    )
    text = Path(reference_to(load)["file"]).read_text()

    assert result.verdict == "valid", result.reasons
    assert "unused" not in text
    for line in ("from math import sqrt as sqrt", "import numpy as np", "import numpy.linalg as la", "COUNT = 40"):
        assert line in text.splitlines()


def test_the_current_cell_counts(notebook: Any) -> None:
    """A cell that runs again defines another function, with another file."""
    first = reference_to(notebook(CELL).load)
    second = reference_to(notebook(CELL.replace("40", "50")).load)

    assert first["file"] != second["file"]
    assert "COUNT = 50" in Path(second["file"]).read_text()


def test_a_class_of_a_cell_is_written_with_its_bases_and_decorators(notebook: Any) -> None:
    """Methods know the cell of the class."""
    source = (
        "import functools\nclass Base:\n    def size(self): return 3\n"
        "@functools.total_ordering\nclass Own(Base):\n    def __lt__(self, other): return LIMIT < 1\nLIMIT = 2\n"
    )
    text = Path(reference_to(notebook(source).Own)["file"]).read_text()

    namespace: dict[str, Any] = {}
    exec(text, namespace)  # noqa: S102 - the text is a module
    assert namespace["Own"]().size() == 3
    assert not namespace["Own"]() < 1
    assert text.index("class Base") < text.index("@functools.total_ordering")


@pytest.fixture
def helper_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let cells import `helpers_of_a_cell`, a file of the user."""
    (tmp_path / "helpers_of_a_cell.py").write_text(
        "def double(x):\n    return 2 * x\n\n\ndef half(x):\n    return double(x) / 4\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("helpers_of_a_cell", None)


def test_functions_of_the_users_files_are_written_too(notebook: Any, helper_file: None) -> None:
    """Nodes do not have the user's folder."""
    source = "from helpers_of_a_cell import half as divide\ndef load(): return divide(6)\n"
    text = Path(reference_to(notebook(source).load)["file"]).read_text()

    namespace: dict[str, Any] = {}
    exec(text, namespace)  # noqa: S102 - the text is a module
    assert namespace["load"]() == 3
    assert "import helpers" not in text


def test_two_meanings_of_a_name_are_rejected(notebook: Any, helper_file: None) -> None:
    """A module has one value for a name."""
    source = "from helpers_of_a_cell import half\ndef double(): pass\ndef load(): return double(), half(1)\n"

    with pytest.raises(UserError, match="double has two meanings"):
        reference_to(notebook(source).load)


def test_a_module_of_the_user_is_rejected(notebook: Any, helper_file: None) -> None:
    """The remedy is to import its functions."""
    message = (
        "load uses helpers_of_a_cell, a module of .*, which nodes do not have; import the functions that load needs"
    )

    with pytest.raises(UserError, match=message):
        reference_to(notebook("import helpers_of_a_cell\ndef load(): return helpers_of_a_cell.half(1)\n").load)


REJECTED = {
    "an object": ("data = object()\ndef load(): return data\n", "load uses data, an object of object, which can't be"),
    "an array": (
        "import numpy as np\nx = np.ones(3)\ndef load(): return x, x\n",
        "load uses x, an object of ndarray, which can't be written to a file; pass it as an argument",
    ),
    "an undefined name": ("def load(): return nothing\n", "load uses nothing, which is not defined"),
    "a lambda": ("load = lambda: 1\n", "is not defined at the top level of a cell or file"),
    "an inner function": (
        "def make():\n    def load(): return 1\n    return load\nload = make()\n",
        "make.<locals>.load is not defined at the top level",
    ),
    "a class without methods": (
        "class load:\n    size = 3\n",
        "the source of load is not known, because it has no meth",
    ),
}


@pytest.mark.parametrize("name", REJECTED)
def test_what_cannot_be_written_to_a_file_is_named(notebook: Any, name: str) -> None:
    """A wrong file would fail on nodes, or train another model."""
    source, message = REJECTED[name]

    with pytest.raises(UserError, match=message):
        ensayo.declare(dataset=notebook(source).load)


def test_code_that_was_typed_into_the_prompt_has_no_source(notebook: Any) -> None:
    """Python before 3.13 does not keep it."""
    load = notebook("def load(): return 1\n").load
    linecache.cache["<cell 0>"] = (0, None, [], "<cell 0>")

    with pytest.raises(
        UserError, match="the source of load is not known, because it was not typed into a cell or file"
    ):
        reference_to(load)


def test_code_of_a_file_is_named_by_its_file_and_code_of_packages_is_imported(tmp_path: Path) -> None:
    """The folder of an installed package is too large to be copied."""
    (tmp_path / "helpers_of_a_test.py").write_text("def load():\n    return 1\n")
    sys.path.append(str(tmp_path))
    try:
        import helpers_of_a_test  # type: ignore[import-not-found]  # noqa: PLC0415
    finally:
        sys.path.remove(str(tmp_path))
    own, installed = reference_to(helpers_of_a_test.load), reference_to(pytest.importorskip)

    assert own == {"file": str(tmp_path / "helpers_of_a_test.py"), "name": "load"}
    assert Path(installed["file"]).read_text() == "from _pytest.outcomes import importorskip as importorskip\n"


@pytest.mark.slow
def test_a_class_of_a_real_notebook_trains(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    """Jupyter's kernel names cells in its own way."""
    model = (pytestconfig.rootpath / "tests/support/own_models/perceptron.py").read_text()
    activation = (pytestconfig.rootpath / "tests/support/own_models/activation.py").read_text()
    (tmp_path / "activation.py").write_text(activation)
    call = (
        "result = ensayo.rehearse(model=Perceptron, dataset='linnerud', batch=4, epochs=1, engine='simulated', "
        "strategies=['all_reduce'], workers=2, cluster=ensayo.Cluster(worker=ensayo.Worker(throughput='1000/s')))\n"
        "print(result.verdict, result.reasons)"
    )

    outputs = run_cells(tmp_path, pytestconfig.rootpath, "import ensayo", model, call)

    assert "".join(output["text"] for output in outputs if output.get("name") == "stdout").startswith("valid ()")
