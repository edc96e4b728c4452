"""Workload of a scenario that runs a training command of the user: one process of the command per worker."""

import re
from collections.abc import Iterator
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, PositiveInt, model_validator

from services.cluster.compute_speed import SampleOperations
from services.scenario.commands.environment_facts import CommandImage, CommandInterpreter, InstalledRequirements
from services.scenario.commands.launch_variables import RESERVED_VARIABLES
from services.scenario.commands.value_types import CommandWords, LineMark, LinePattern, Name, names_in_braces
from services.scenario.target import QualityTarget
from services.schema.component import SET_BY_ENSAYO, FrozenRecord
from services.schema.conflicts import KeyConflict, raise_conflicts
from services.schema.units import Operations

BUILT_IN_VARIABLES = ("workers", "seed")
PYTHON_NAMES = ("python", "python3")  # stand for the interpreter of the command
ENVIRONMENT_KEYS = ("python", "requirements", "image")  # of which a command has at most one
PROCESSES_OPTION = r"--nproc[-_]per[-_]node(=.*)?"  # of torchrun


def _is_reserved_variable(name: str) -> bool:
    """Return whether Ensayo sets an environment variable itself; those of torchrun begin with PET_."""
    return name in RESERVED_VARIABLES or name.startswith(("ENSAYO_", "PET_"))


class CommandWorkload(FrozenRecord):
    """Training command of the user, which is run unchanged: one process per worker, with the worker's rank."""

    kind: Literal["command"] = "command"
    command: CommandWords = Field(
        min_length=1,
        description="command and its arguments, such as python train.py --epochs 3, or as a list. {workers}, {seed} "
        "and the names of variables in braces are replaced",
    )
    folder: str = Field(
        ".", description="folder of the command's files, which nodes can read; relative to the scenario file"
    )
    python: str | None = Field(
        None,
        description="Python interpreter of a virtual environment, such as .venv/bin/python, relative to the scenario "
        "file; default: the one that runs Ensayo",
    )
    requirements: str | None = Field(
        None,
        description="requirements file of pip, relative to the scenario file, such as requirements.txt; Ensayo makes a "
        "virtual environment of it, which runs the command in place of python",
    )
    image: str | None = Field(
        None,
        description="container image, such as my/training:1, whose python3 runs the command in place of python, on "
        "engine docker",
    )
    requires: tuple[Name, ...] = Field(
        (),
        description="names of modules that the interpreter must be able to import, such as [torch]; missing_packages "
        "decides what happens to trials without them",
    )
    variables: dict[Name, str | int | float] = Field(
        {}, description="values for names in braces in the command; a sweep may set workload.variables.NAME"
    )
    environment: dict[Name, str] = Field({}, description="environment variables of the command")
    metrics: dict[Name, LinePattern] = Field(
        {},
        description="metric -> regular expression for lines that rank 0 writes, with one group for the number, such as "
        "accuracy: 'accuracy: ([0-9.]+)'",
    )
    step_line: LineMark | None = Field(
        None,
        description="regular expression for a line that every rank writes at the end of each step, which gives "
        "the step times of frameworks other than PyTorch",
    )
    batch_per_worker: PositiveInt = Field(
        1,
        description="samples that one rank computes in a training step, to which the throughput of workers refers; "
        "with 1, throughput: 5/s means a step time of 200 ms",
    )
    target: QualityTarget | None = Field(
        None,
        description="metric value to reach; the time until rank 0 first reports it is measured, and the command "
        "continues",
    )
    flops_per_sample: Operations | None = Field(
        None,
        description="floating-point operations of forward and backward pass for one sample, for workers with a "
        "utilisation",
    )
    interpreter: CommandInterpreter | None = Field(
        None, description="facts about the interpreter python; set by Ensayo", json_schema_extra=SET_BY_ENSAYO
    )
    installed_requirements: InstalledRequirements | None = Field(
        None,
        description="packages of the environment made of requirements; set by Ensayo",
        json_schema_extra=SET_BY_ENSAYO,
    )
    image_facts: CommandImage | None = Field(
        None, description="facts about image; set by Ensayo", json_schema_extra=SET_BY_ENSAYO
    )
    sha256: str | None = Field(
        None, description="digest of all Python files in folder; set by Ensayo", json_schema_extra=SET_BY_ENSAYO
    )
    code: str | None = Field(
        None, description="copy of these files in the user's cache; set by Ensayo", json_schema_extra=SET_BY_ENSAYO
    )

    @model_validator(mode="after")
    def _reject_field_conflicts(self) -> Self:
        raise_conflicts(self._find_field_conflicts())
        return self

    def _find_field_conflicts(self) -> Iterator[KeyConflict]:
        yield from self._find_variable_conflicts()
        first = str(self.command[0])
        if re.fullmatch(r"(.*/)?python[0-9.]*", first) and first not in PYTHON_NAMES:
            message = f"write python in place of {first}, and name the interpreter in workload.python"
            yield KeyConflict(("command",), message)
        yield from self._find_option_conflicts()
        yield from self._find_torchrun_conflicts()
        yield from self._find_environment_conflicts()
        for name in (name for name in self.environment if _is_reserved_variable(name)):
            yield KeyConflict(("environment", name), f"{name} is set by Ensayo; remove it")
        if self.target is not None and self.target.metric not in self.metrics:
            message = (
                f"{self.target.metric} is not in workload.metrics; add a pattern, such as "
                f"{self.target.metric}: '{self.target.metric}[=: ]+([0-9.eE+-]+)'"
            )
            yield KeyConflict(("target", "metric"), message)

    def _find_variable_conflicts(self) -> Iterator[KeyConflict]:
        """Yield a conflict for each name in braces that is not declared, and each declared one without effect."""
        known = dict.fromkeys((*BUILT_IN_VARIABLES, *self.variables))
        used = set[str]()
        for number, word in enumerate(self.command):
            try:
                names = names_in_braces(word)
            except ValueError as error:
                message = f"{word!r} has wrong braces: {error}; write {{{{ and }}}} for braces of the command itself"
                yield KeyConflict(("command", number), message)
                continue
            used.update(names)
            if unknown := [name for name in names if name not in known]:
                message = (
                    f"{{{unknown[0]}}} is not a variable; known variables are {', '.join(known)}; declare it in "
                    "variables, or write {{ and }} for braces of the command itself"
                )
                yield KeyConflict(("command", number), message)
        for name in self.variables:
            if name in BUILT_IN_VARIABLES:
                yield KeyConflict(("variables", name), f"{name} is set by Ensayo; choose another name")
            elif name not in used:
                message = f"{name} has no effect, since the command has no {{{name}}}; write it there, or remove {name}"
                yield KeyConflict(("variables", name), message)

    def _find_option_conflicts(self) -> Iterator[KeyConflict]:
        """Yield a conflict for options of Python that ignore PYTHONPATH, from which Python imports the metering."""
        if self.command[0] not in PYTHON_NAMES:
            return
        for word in takewhile(lambda word: re.fullmatch(r"-[a-zA-Z]+", word), map(str, self.command[1:])):
            if word in ("-c", "-m", "-X", "-W"):  # followed by a value
                return
            if ignoring := re.search("[IES]", word):
                message = f"-{ignoring[0]} of Python stops the metering of the command; remove it"
                yield KeyConflict(("command",), message)

    def _find_torchrun_conflicts(self) -> Iterator[KeyConflict]:
        """Yield a conflict if torchrun would start several processes per worker: each worker is one rank."""
        words = [str(word) for word in self.command]
        if not (words[0].endswith("torchrun") or "torch.distributed.run" in words):
            return
        for number, word in enumerate(words):
            if (match := re.fullmatch(PROCESSES_OPTION, word)) is None:
                continue
            count = match[1].removeprefix("=") if match[1] else "".join(words[number + 1 : number + 2])
            if count != "1":
                message = (
                    f"{word.partition('=')[0]} {count} starts other ranks than the workers of the cluster; remove "
                    "this option, and declare the number of ranks in cluster.workers: each worker is one rank"
                )
                yield KeyConflict(("command",), message)

    def _find_environment_conflicts(self) -> Iterator[KeyConflict]:
        """Yield a conflict if several keys declare the interpreter that runs the command."""
        declared = [key for key in ENVIRONMENT_KEYS if getattr(self, key) is not None]
        if len(declared) > 1:
            message = f"{' and '.join(declared)} each declare the environment of the command; write only one of them"
            yield KeyConflict((declared[-1],), message)

    @cached_property
    def sample_operations(self) -> SampleOperations | None:
        """Floating-point operations of a training step for one sample, if they are declared."""
        if self.flops_per_sample is None:
            return None
        return SampleOperations(self.flops_per_sample, "workload.flops_per_sample")

    @property
    def code_folder(self) -> Path | None:
        """Folder with the copies of its Python files that were made when the scenario was loaded; None without any."""
        return None if self.code is None else Path(self.code)

    @property
    def missing_modules(self) -> tuple[str, ...]:
        """Names of required modules that the interpreter can't find."""
        return self.interpreter.missing if self.interpreter else ()

    @property
    def host_packages(self) -> tuple[str, ...]:
        """Folders of this host from which containers import the packages of the command; none with an image."""
        return self.interpreter.packages if self.interpreter and self.image_facts is None else ()

    @property
    def computes_on_gpu(self) -> bool:
        """Whether workers can compute on a GPU: commands run on the CPU."""
        return False

    @property
    def uses_seed(self) -> bool:
        """Whether the words of the command contain the seed of the trial."""
        return any("seed" in names_in_braces(word) for word in self.command)

    def command_words(self, worker_count: int, seed: int) -> tuple[str, ...]:
        """Return the words of the command with all variables replaced."""
        values = self.variables | {"workers": worker_count, "seed": seed}
        return tuple(str(word).format_map(values) for word in self.command)
