"""Dry run of a user's command: one process that counts the collectives of a step, without a network.

The process has `RANK=0`. Its collectives return at once, without communication. It ends after a few optimiser steps.
"""

import hashlib
import json
import os
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from compose.commands.image_programs import give_to_container_user, run_in_container
from compose.engines.containers.node_image.build import build_command_image
from compose.engines.containers.node_image.packages import IMAGE_PYTHON
from compose.engines.local import NODE_ENVIRONMENT
from compose.host.host_facts import user_cache_folder
from compose.runs.host_program import run_host_program
from services.commands.launch import LOOPBACK, SCRIPT_PROCESS_FOLDER
from services.commands.script_process.ensayo_meter.step_schedule import UNSTEADY_STEPS
from services.commands.working_folder import prepare_command_folder
from services.scenario.commands.command_workload import PYTHON_NAMES, CommandWorkload
from services.scenario.commands.launch_variables import PROCESS_VARIABLES, launch_variables, torchrun_variables
from services.scenario.commands.step_profile import StepProfile, StepProfileOutcome

STEPS = 8
TIMEOUT_S = 120.0
RENDEZVOUS_PORT = 1  # at which no process listens: a dry run has one rank
MAX_REASON_LENGTH = 300
MAX_SHARE_DIFFERENCE = 0.05  # on a busy host, the shares of two dry runs of one command differ by 0.01 to 0.03
TIMES = ("launch_shares", "wait_shares", "update_share", "cpu_s")  # of a step profile
_failures: dict[str, dict[str, Any]] = {}  # of this process, by digest of their inputs
IMAGE_SCRATCH_FOLDER = Path("/run/ensayo-dry-run")  # in containers
IMAGE_SCRIPT_PROCESS_FOLDER = f"/opt/ensayo/lib/python{IMAGE_PYTHON}/site-packages/services/commands/script_process"
SCRIPT_FAILED = "the script failed"  # begin of a reason that has the exception of the script
NOTHING_COUNTED = "no collective was counted: the command does not use torch.distributed"


def measure_step_profile_on_host(workload: CommandWorkload, worker_count: int, seed: int) -> StepProfileOutcome:
    """Return the step profile of a command on so many ranks, or the reason why there is none.

    The result is kept in the user's cache: it depends on the command and its environment, the Python files of its
    folder, the interpreter and the number of ranks. The seed has no effect, so that repeats share a step profile.
    Commands that differ in other arguments share the times of a step profile if they agree: see `use_agreeing_times`.
    """
    if reason := _reason_to_count_nothing(workload):
        return StepProfileOutcome(None, reason)
    words = workload.command_words(worker_count, seed)
    inputs: list[Any] = [workload.command_words(worker_count, 0), workload.sha256, worker_count, workload.environment]
    inputs += [workload.folder, workload.interpreter.model_dump() if workload.interpreter else None]
    inputs += [workload.image_facts.id] if workload.image_facts else []
    inputs += [_metering_code_digest(), _file_times(Path(workload.folder)), _torch_versions(workload)]
    digest = hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()
    path = user_cache_folder() / "step_profiles" / f"{digest}.json"
    if path.exists():
        return _decode_outcome(json.loads(path.read_text(encoding="utf-8")))
    result = _failures.get(digest) or _run(workload, words, worker_count, seed)
    if not result["complete"]:
        _failures[digest] = result  # not kept for other processes: a busy host or a missing file may be the cause
        return _decode_outcome(result)
    calls = [result["collectives"], result["begins_without_gradient"]]
    inputs_of_all_arguments = hashlib.sha256(json.dumps([inputs[1:], calls], sort_keys=True).encode()).hexdigest()
    result = use_agreeing_times(result, path.with_name(f"times-{inputs_of_all_arguments}.json"))
    _write_json(path, result)
    return _decode_outcome(result)


def use_agreeing_times(result: dict[str, Any], first_path: Path) -> dict[str, Any]:
    """Return the result of a dry run with the times of the first one with the same collectives, if they agree.

    Two commands that differ in a learning rate have the same step. Each dry run measures it a little differently, and
    their predictions would be compared with each other. Times agree if no share differs by more than
    MAX_SHARE_DIFFERENCE of the step's compute.

    Args:
        result: of a complete dry run.
        first_path: file of the result that other commands in this folder with the same collectives share; it is
            written if it does not exist.
    """
    if not first_path.exists():
        _write_json(first_path, result)
        return result
    first = json.loads(first_path.read_text(encoding="utf-8"))
    pairs = zip(_shares(result), _shares(first), strict=True)
    if any(abs(share - first_share) > MAX_SHARE_DIFFERENCE for share, first_share in pairs):
        return result
    return result | {name: first[name] for name in TIMES}


def _shares(result: Mapping[str, Any]) -> list[float]:
    return [*result["launch_shares"], *result["wait_shares"], result["update_share"]]


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(f".{os.getpid()}")
    temporary.write_text(json.dumps(value))
    temporary.replace(path)


def _reason_to_count_nothing(workload: CommandWorkload) -> str:
    """Return why a dry run would count no collectives; empty if it may count some."""
    if workload.missing_modules:
        return f"dry run: {workload.missing_modules[0]} is not installed"
    if workload.requires and "torch" not in workload.requires:
        return "dry run: collectives are counted in torch.distributed, and workload.requires does not name torch"
    return ""


def _file_times(folder: Path) -> list[tuple[str, int, int]]:
    """Return name, size and time of change of the files in a folder, which a script may read."""
    files = sorted(path for path in folder.iterdir() if path.is_file())
    return [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in files]


def _torch_versions(workload: CommandWorkload) -> list[str]:
    """Return the names of the folders that state the version of PyTorch in the packages of the interpreter."""
    folders = map(Path, workload.host_packages)
    return [path.name for folder in folders for path in sorted(folder.glob("torch-*.dist-info"))]


def _metering_code_digest() -> str:
    """Return the digest of the code that measures: results of other versions are not used."""
    files = sorted(SCRIPT_PROCESS_FOLDER.rglob("*.py"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def _decode_outcome(result: dict[str, Any]) -> StepProfileOutcome:
    if not result["complete"]:
        return StepProfileOutcome(None, f"dry run: {result['reason']}")
    profile = {key: result[key] for key in StepProfile.model_fields}
    return StepProfileOutcome(StepProfile.model_validate(profile))


def _run(workload: CommandWorkload, words: tuple[str, ...], worker_count: int, seed: int) -> dict[str, Any]:
    """Run the command once with counted collectives, and return what it has counted."""
    if words[0] not in PYTHON_NAMES:
        return _failure(f"a dry run needs a command that begins with python or python3, not {words[0]}")
    with tempfile.TemporaryDirectory(prefix="ensayo-dry-run-") as folder:
        scratch = Path(folder)
        (scratch / "files").mkdir()
        prepare_command_folder(Path(workload.folder), workload.code_folder, scratch / "files")
        place = IMAGE_SCRATCH_FOLDER if workload.image_facts else scratch
        settings = {"mode": "dry_run", "output": str(place / "result.json"), "dry_run_steps": STEPS}
        (scratch / "meter.json").write_text(json.dumps(settings))
        environment = _environment(workload, worker_count, seed, place)
        arguments = [workload.interpreter.path if workload.interpreter else "python", *words[1:]]
        command = ["env", f"--chdir={place / 'files'}", *(f"{name}={value}" for name, value in environment.items())]
        try:
            process = _run_program(workload, scratch, [*command, *arguments])
        except subprocess.TimeoutExpired:
            return _failure(f"the command made fewer than {STEPS} optimiser steps in {TIMEOUT_S:g} s")
        output = scratch / "result.json"
        if not output.exists():
            return _failure(_describe_exit(process) if process.returncode else NOTHING_COUNTED)
        result: dict[str, Any] = json.loads(output.read_text(encoding="utf-8"))
        if process.returncode and not result["reason"].startswith(SCRIPT_FAILED):
            return _failure(_describe_exit(process))  # Python's own error, such as that of a wrong file name
        return _summarise(result)


def _describe_exit(process: subprocess.CompletedProcess[str]) -> str:
    """Return exit code and last line of a process."""
    last_line = (process.stderr.strip().splitlines() or ["no message"])[-1]
    without_folder = re.sub(r"/\S*/ensayo-dry-run[^/]*/files/", "", last_line)  # the name of the file suffices
    return f"the command ended with exit code {process.returncode}: {without_folder}"


def _run_program(workload: CommandWorkload, scratch: Path, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run a program on the host, or in a container of the node image that is built on the image of the command."""
    if workload.image_facts is None:
        return run_host_program(command, TIMEOUT_S)
    node_image = build_command_image(workload.image_facts.id, lambda _: None)  # exists since the scenario was loaded
    give_to_container_user(scratch)
    folders = {scratch: (str(IMAGE_SCRATCH_FOLDER), True), Path(workload.folder): (workload.folder, False)}
    return run_in_container(node_image, command, TIMEOUT_S, folders=folders)


def _environment(workload: CommandWorkload, worker_count: int, seed: int, scratch: Path) -> dict[str, str]:
    """Return the environment variables of the command; `scratch` is its folder for temporary files.

    A script may read any variable that it has in a run. TF_CONFIG is missing: TensorFlow would wait for other ranks.
    """
    image, interpreter = workload.image_facts, workload.interpreter
    search_path = image.search_path if image else os.environ.get("PATH", os.defpath)
    programs = [str(Path(interpreter.path).parent)] if interpreter else []
    rank_and_rendezvous = (0, worker_count, "127.0.0.1", RENDEZVOUS_PORT)
    python_path = [IMAGE_SCRIPT_PROCESS_FOLDER, image.python_path] if image else [str(SCRIPT_PROCESS_FOLDER)]
    return {
        **NODE_ENVIRONMENT,
        "PATH": os.pathsep.join((*programs, search_path)),
        "PYTHONPATH": os.pathsep.join(filter(None, python_path)),
        **PROCESS_VARIABLES,
        "HOME": str(scratch),
        **launch_variables(*rank_and_rendezvous, run_id="dry-run"),
        **torchrun_variables(*rank_and_rendezvous),
        "GLOO_SOCKET_IFNAME": LOOPBACK,
        "TP_SOCKET_IFNAME": LOOPBACK,
        "ENSAYO_METER": str(scratch / "meter.json"),
        "ENSAYO_SEED": str(seed),
        **workload.environment,
    }


def _failure(reason: str) -> dict[str, Any]:
    return {"complete": False, "reason": reason[:MAX_REASON_LENGTH]}


def _summarise(result: dict[str, Any]) -> dict[str, Any]:
    """Return the profile of the usual step in steady state, in the form of the cache.

    Other steps may have further collectives, such as those of an evaluation.
    """
    if not result["complete"]:
        return _failure(result["reason"])
    profile = result["step_profile"]
    if not all(
        _has_collectives(step["collectives"], profile["collectives"]) for step in result["steps"][UNSTEADY_STEPS:]
    ):
        return _failure("the collectives differ from step to step")
    return {"complete": True, "start_collectives": result["start_collectives"], **profile}


def _has_collectives(calls: Sequence[Mapping[str, Any]], usual_calls: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether the calls of a step are the usual ones and possibly others."""
    counts, usual_counts = (Counter(tuple(call.values()) for call in each) for each in (calls, usual_calls))
    return usual_counts <= counts
