"""No input makes a reader crash, hang or use much memory; a wrong one gets an error that the reader documents."""

import os
import random
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from fuzz_targets import TARGETS
from hypothesis import given, settings
from hypothesis import strategies as st

CORPUS = Path(__file__).with_name("corpus")
SHORT_FUZZING_S = 20  # for each target
SPECIAL_PARTS = (b"9" * 30, b"-1", b"null", b"[[", b'{"":', b"\0", b"\xff\xfe", b"1e999")
each_target = pytest.mark.parametrize("name", TARGETS)


def test_every_target_has_a_folder_of_inputs() -> None:
    """A folder without target would never be read."""
    assert {folder.name for folder in CORPUS.iterdir()} == set(TARGETS)


@each_target
def test_a_reader_accepts_the_seeds_of_its_target(name: str) -> None:
    """Otherwise a fuzzer would never reach the code behind the first checks."""
    seeds = list((CORPUS / name).glob("seed-*"))

    for seed in seeds:
        TARGETS[name].check_seed(seed.read_bytes())

    assert seeds


@each_target
def test_inputs_that_once_crashed_a_reader_are_read_or_rejected(name: str) -> None:
    """Each of these inputs crashed its reader, hung it, or was written to try."""
    for path in sorted((CORPUS / name).iterdir()):
        TARGETS[name].check(path.read_bytes())


@each_target
@settings(max_examples=40)
@given(chance=st.randoms(use_true_random=False), change_count=st.integers(1, 8), tail=st.binary(max_size=20))
def test_damaged_seeds_are_read_or_rejected(name: str, chance: random.Random, change_count: int, tail: bytes) -> None:
    """Bytes are replaced, removed and doubled, and the end is lost, as in files that were cut off."""
    content = bytearray(chance.choice(sorted((CORPUS / name).glob("seed-*"))).read_bytes())
    for _ in range(change_count):
        damage(content, chance)

    TARGETS[name].check(bytes(content) + tail)


def damage(content: bytearray, chance: random.Random) -> None:
    """Change a few neighbouring bytes."""
    start = chance.randrange(len(content) + 1)
    end = min(len(content), start + chance.randrange(1, 9))
    match chance.randrange(4):
        case 0:
            content[start:end] = chance.randbytes(end - start)
        case 1:
            del content[start:end]
        case 2:
            content[start:start] = content[start:end]
        case _:
            content[start:end] = chance.choice(SPECIAL_PARTS)


@each_target
@settings(max_examples=20)
@given(content=st.binary(max_size=200))
def test_arbitrary_bytes_are_read_or_rejected(name: str, content: bytes) -> None:
    TARGETS[name].check(content)


@pytest.mark.slow
@pytest.mark.skipif(find_spec("atheris") is None, reason="Atheris has no wheel for this system")
def test_a_short_search_guided_by_coverage_finds_no_crash() -> None:
    """The search begins with the same seed each time, so that a commit does not pass or fail by chance.

    `make fuzz-inputs` searches longer, with other seeds; what it finds becomes an input of the corpus.
    """
    program = Path(__file__).with_name("run_fuzzers.py")
    arguments = ["--seconds", str(SHORT_FUZZING_S), "--seed", "1"]

    run = subprocess.run(
        [sys.executable, program, *arguments],
        env=os.environ | {"PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert run.returncode == 0, run.stdout + run.stderr
