"""No package reads data with a function that can execute them, except where an exception is listed with its reason."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGES = ("services", "compose", "analysis", "ensayo", "benchmarks")
# Modules that execute what they read, or a process that does.
FORBIDDEN_MODULES = frozenset({"pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"})
# Functions by the last parts of their name: `yaml.load`, and `eval` without an object before it.
FORBIDDEN_CALLS = frozenset(
    {"eval", "exec", "compile", "__import__", "os.system", "os.popen", "yaml.load", "yaml.unsafe_load"}
)
# (file, use) -> reason. The model and the code of a user run by import, which no function of this list does.
ALLOWED = {
    (
        "analysis/reading/parallel.py",
        "joblib.externals.loky",
    ): "pickles between a process and its own helpers, over pipes",
}


def python_files(root: Path) -> Iterator[Path]:
    for package in PACKAGES:
        yield from sorted((root / package).rglob("*.py"))


def dangerous_uses(tree: ast.AST) -> Iterator[str]:
    """Yield the name of each import or call that can execute data."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.partition(".")[0] in FORBIDDEN_MODULES)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in FORBIDDEN_MODULES:
            yield str(node.module)
        elif isinstance(node, ast.Call):
            yield from dangerous_call(node)


def dangerous_call(call: ast.Call) -> Iterator[str]:
    name = ast.unparse(call.func)
    keywords = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
    if name in FORBIDDEN_CALLS:
        yield name
    if keywords.get("allow_pickle", "False") != "False":
        yield f"{name}(allow_pickle={keywords['allow_pickle']})"
    if keywords.get("shell", "False") != "False":
        yield f"{name}(shell={keywords['shell']})"
    if name in {"np.load", "numpy.load"} and "allow_pickle" not in keywords:
        yield f"{name} without allow_pickle=False"
    if name == "torch.load" and keywords.get("weights_only") != "True":
        yield f"{name} without weights_only=True"


def test_no_package_executes_data(pytestconfig: pytest.Config) -> None:
    """Run folders, data files and messages come from elsewhere. Pickled data are a program."""
    uses = {
        (str(path.relative_to(pytestconfig.rootpath)), use)
        for path in python_files(pytestconfig.rootpath)
        for use in dangerous_uses(ast.parse(path.read_text(encoding="utf-8")))
    }

    assert uses - ALLOWED.keys() == set(), "use JSON, arrays with allow_pickle=False, or list the exception above"
    assert ALLOWED.keys() - uses == set(), "an exception that no code needs"


@pytest.mark.parametrize(
    "code",
    [
        "import pickle",
        "from marshal import loads",
        "eval('1')",
        "exec(text)",
        "os.system('ls')",
        "yaml.load(text, yaml.Loader)",
        "np.load(path)",
        "np.load(path, allow_pickle=True)",
        "torch.load(path)",
        "torch.load(path, weights_only=False)",
        "subprocess.run('ls', shell=True)",
    ],
)
def test_the_search_finds_each_dangerous_use(code: str) -> None:
    """Without this, the test above could pass because it finds nothing."""
    assert list(dangerous_uses(ast.parse(code)))


@pytest.mark.parametrize(
    "code",
    ["model.eval()", "np.load(path, allow_pickle=False)", "torch.load(path, weights_only=True)", "re.compile('a')"],
)
def test_the_search_leaves_harmless_uses(code: str) -> None:
    assert not list(dangerous_uses(ast.parse(code)))
