"""Reading of scenario files: paths that are no scenario, and files that are too large or nested too deeply."""

import os
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from compose.scenario_files.load import MAX_FILE_BYTES, find_scenario, load_scenario
from compose.scenario_files.problems import ScenarioError
from compose.scenario_files.yaml_document import MAX_YAML_DEPTH, parse_yaml
from services.schema.errors import UserError

THOUSAND_WORKERS = """# How large may a cluster be?
name: large
workload:
  dataset: {kind: digits}
  model: {kind: linear}
  optimiser: {kind: sgd, rate: 0.1}
  batch: 1000
cluster:
  workers: 1000
  worker: {throughput: 4000/s, uplink: 100mbit}
strategies:
  ps: {kind: parameter_server}
"""


def link_to_itself(path: Path) -> None:
    path.symlink_to(path)


@pytest.mark.parametrize(
    ("create", "reason"),
    [
        (Path.mkdir, "this is a folder"),
        (link_to_itself, "the file can't be read: Too many levels of symbolic links"),
        (os.mkfifo, "not a regular file"),
        (lambda _: None, "file not found"),
    ],
)
def test_a_path_that_is_no_file_is_rejected_with_the_reason(
    create: Callable[[Path], None], reason: str, tmp_path: Path
) -> None:
    """A folder or a loop of links was reported as missing, and the user searched for a file that exists."""
    path = tmp_path / "mine.yaml"
    create(path)

    with pytest.raises(UserError) as raised:
        find_scenario(str(path))

    assert str(raised.value).startswith(f"{path}: {reason}")


def test_a_file_name_that_is_too_long_is_rejected_with_the_reason() -> None:
    """The operating system does not look for such a file at all."""
    with pytest.raises(UserError, match="the file can't be read: File name too long"):
        find_scenario(f"{'a' * 5000}.yaml")


@pytest.mark.parametrize(
    ("file_name", "advice"),
    [
        ("mine.yaml", "write name: mine, or rename the file to yours.yaml"),
        ("My own.yaml", "rename the file to yours.yaml"),
    ],
)
def test_a_name_that_differs_from_the_file_is_rejected_with_the_line(
    file_name: str, advice: str, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    """The results of an edited copy would lie among those of the original scenario."""
    path = tmp_path / file_name
    smoke = (pytestconfig.rootpath / "scenarios" / "smoke.yaml").read_text()
    path.write_text(smoke.replace("name: smoke", "name: yours"))

    with pytest.raises(ScenarioError) as raised:
        load_scenario(path)

    (problem,) = raised.value.problems
    reason = f"'yours' is not the name of the file ({path.stem!r}); both must be equal, because results are stored"
    assert problem.message == f"{reason} under name; {advice}"
    assert problem.position.line


def test_copies_in_run_folders_and_settings_may_have_another_name(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    """A run folder contains its scenario under a fixed name; `--set name=…` files a run under another name."""
    path = tmp_path / "scenario.yaml"
    path.write_text((pytestconfig.rootpath / "scenarios" / "smoke.yaml").read_text())

    assert load_scenario(path).name == "smoke"
    assert load_scenario("smoke", {"name": "other"}).name == "other"


def test_a_file_with_another_encoding_is_rejected_with_the_line(tmp_path: Path) -> None:
    """An editor may save Latin-1; the user searches for the character."""
    path = tmp_path / "mine.yaml"
    path.write_bytes(b"name: mine\n# caf\xe9\n")

    with pytest.raises(UserError, match=rf"^{path}:2: a character is not valid UTF-8; save the file as UTF-8 text$"):
        load_scenario(path)


def test_a_file_of_more_than_a_megabyte_is_not_parsed(tmp_path: Path) -> None:
    """A file of logs or data, given by mistake, would be parsed for minutes."""
    path = tmp_path / "mine.yaml"
    path.write_text("# " + "x" * MAX_FILE_BYTES)

    with pytest.raises(UserError, match=rf"mine.yaml: the file has .* bytes; .* at most {MAX_FILE_BYTES:,}"):
        load_scenario(path)


@pytest.mark.parametrize("brackets", ["[" * 5000, "[" * 5000 + "]" * 5000, "{a: " * 5000, "\n  " + "- " * 5000])
def test_deeply_nested_brackets_are_rejected_at_their_line(brackets: str) -> None:
    """The parser exceeded the recursion limit, which was reported as an alias."""
    with pytest.raises(
        ScenarioError, match=rf"^mine.yaml:[23]: sections and lists are nested more than {MAX_YAML_DEPTH}"
    ):
        parse_yaml(f"name: broken\nworkload: {brackets}", "mine.yaml")


def test_lists_that_aliases_nest_too_deeply_are_rejected() -> None:
    """Each anchor contains the one before it: the text is flat, the document is not."""
    anchors = [f"a{k}" for k in range(MAX_YAML_DEPTH + 2)]
    lines = [f"  - &{anchor} [*{inner}]" for inner, anchor in pairwise(anchors)]

    with pytest.raises(ScenarioError, match=f"sections and lists are nested more than {MAX_YAML_DEPTH}"):
        parse_yaml("\n".join(["x:", f"  - &{anchors[0]} 1", *lines]), "mine.yaml")


def test_a_list_of_too_many_items_is_rejected() -> None:
    """Reading them takes seconds, and no scenario needs them."""
    with pytest.raises(ScenarioError, match=r"^mine.yaml:\d+: the document has more than 20,000 keys and list items"):
        parse_yaml("x:\n" + "- 1\n" * 50_000, "mine.yaml")


def test_the_deepest_allowed_list_is_read() -> None:
    """The limit is the one that the message states."""
    assert parse_yaml("[" * MAX_YAML_DEPTH + "]" * MAX_YAML_DEPTH, "mine.yaml").data


def test_an_alias_that_does_not_contain_itself_may_be_used_twice() -> None:
    """Two workers may share settings; only a loop is an error."""
    assert parse_yaml("x: &a [1]\ny: [*a, *a]", "mine.yaml").data == {"x": [1], "y": [[1], [1]]}


def test_a_thousand_workers_are_allowed_in_virtual_time(tmp_path: Path) -> None:
    """The limits exclude what cannot run, and a cluster of this size runs."""
    path = tmp_path / "large.yaml"
    path.write_text(THOUSAND_WORKERS)

    assert load_scenario(path, engine="simulated").cluster.workers == 1000
