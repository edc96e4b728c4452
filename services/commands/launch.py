"""Start of a user's command on a node: its words, environment, working folder and settings of the metering."""

import ctypes
import json
import os
import signal
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from services.commands import script_process
from services.plan import COORDINATOR, CommandPlan, NodePlan
from services.runtime.host_facts import find_network_interface
from services.scenario.commands.command_workload import PYTHON_NAMES
from services.scenario.commands.environment_facts import CommandImage
from services.scenario.commands.launch_variables import PROCESS_VARIABLES, launch_variables, torchrun_variables
from services.scenario.commands.step_profile import StepProfile

SCRIPT_PROCESS_FOLDER = Path(script_process.__path__[0])  # on the PYTHONPATH of commands
LOOPBACK = "lo"
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)  # loaded here: a process that has just been forked must not load libraries
_LIBC.prctl  # noqa: B018 - resolves the function


def command_words(plan: CommandPlan) -> tuple[str, ...]:
    """Return the words of the command, with the interpreter of the node.

    `torchrun` is a program of the host's environment, so its module is run instead.
    """
    first, *others = plan.command
    if first in PYTHON_NAMES or first == "torchrun":
        module = ("-m", "torch.distributed.run") if first == "torchrun" else ()
        return (interpreter_path(plan), *module, *others)
    return plan.command


def interpreter_path(plan: CommandPlan) -> str:
    """Return the path of the Python interpreter: the node image has one of its own, unless it is one of the user."""
    interpreter = plan.workload.interpreter
    uses_interpreter_of_node = plan.engine == "docker" and plan.workload.image_facts is None
    return sys.executable if uses_interpreter_of_node or interpreter is None else interpreter.path


def command_environment(plan: CommandPlan, node: NodePlan, settings_file: Path) -> dict[str, str]:
    """Return the environment variables of the command on a node.

    They are those of `torch.distributed` (env://), of torchrun and of TensorFlow (TF_CONFIG). Rendezvous messages cross
    the control network, data the shaped one.
    """
    workers = plan.node_plans_of_role("worker")
    rank_and_rendezvous = (node.rank, plan.workers, workers[0].addresses.control.host, _rendezvous_port(plan))
    interface = find_network_interface(node.addresses.data.host) or LOOPBACK
    image = plan.workload.image_facts
    search_path = image.search_path if image else os.environ.get("PATH", os.defpath)
    programs = os.pathsep.join((str(Path(interpreter_path(plan)).parent), search_path))
    return {
        **os.environ,
        "PATH": programs,
        "PYTHONPATH": os.pathsep.join(_python_path(plan)),
        **PROCESS_VARIABLES,
        "HOME": str(settings_file.parent),
        **launch_variables(*rank_and_rendezvous, run_id=f"{plan.run}-{plan.trial}"),
        **torchrun_variables(*rank_and_rendezvous),
        "TF_CONFIG": json.dumps(_tensorflow_cluster(plan, node)),
        "GLOO_SOCKET_IFNAME": interface,
        "TP_SOCKET_IFNAME": interface,
        "ENSAYO_METER": str(settings_file),
        "ENSAYO_SEED": str(plan.seed),
        **plan.workload.environment,
    }


def _rendezvous_port(plan: CommandPlan) -> int:
    """Return a port for the rendezvous at rank 0, which is free on all addresses of its node.

    It is the data port of the coordinator, which does not listen there, or the next one that rank 0 does not use.
    """
    addresses = plan.node_plans_of_role("worker")[0].addresses
    port = plan.node_plan(COORDINATOR).addresses.data.port
    while port in (addresses.data.port, addresses.control.port):
        port += 1
    return port


def meter_settings(plan: CommandPlan, socket_path: Path, group: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of the metering in the process of the script.

    Args:
        plan: plan of the trial.
        socket_path: socket on which the node receives what is measured.
        group: settings of the process group of Ensayo.
    """
    return {
        "mode": "measure",
        "socket": str(socket_path),
        "step_schedule": _step_schedule(plan.step_profile) if plan.step_profile else None,
        "dilation": plan.dilation,
        "process_group": plan.process_group,
        "process_group_settings": dict(group),
        "ensayo_path": ensayo_path(plan),
    }


def _step_schedule(profile: StepProfile) -> dict[str, Any]:
    return {
        "collectives": [(call.operation, call.bytes, call.dtype) for call in profile.collectives],
        "launch_shares": profile.launch_shares,
        "wait_shares": profile.wait_shares,
        "update_share": profile.update_share,
        "begins_without_gradient": profile.begins_without_gradient,
    }


def end_with_parent() -> None:
    """Make the kernel kill this process when its parent ends, however that happens. Runs in the new process."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _python_path(plan: CommandPlan) -> list[str]:
    """Return the folders from which the command imports: the metering, and the user's packages in a container.

    PYTHONPATH comes before the packages of an interpreter. The folders of this process, which has other versions of
    packages, are therefore not part of it: see `ensayo_path`.
    """
    if plan.workload.image_facts:
        return [str(SCRIPT_PROCESS_FOLDER), *_python_path_in_image(plan, plan.workload.image_facts)]
    packages = plan.workload.host_packages if plan.engine == "docker" else ()
    return [str(SCRIPT_PROCESS_FOLDER), *packages]


def ensayo_path(plan: CommandPlan) -> list[str]:
    """Return the folders that the process group of Ensayo needs in the process of the command, as the last ones.

    Installed packages are built for one version of Python; an interpreter of another one needs packages of its own.
    """
    interpreter = plan.workload.interpreter
    has_own_version = interpreter is None or interpreter.minor_version == sysconfig.get_python_version()
    packages = [sysconfig.get_path("purelib")] if has_own_version else []
    return [str(SCRIPT_PROCESS_FOLDER.parents[2]), *packages]


def _python_path_in_image(plan: CommandPlan, image: CommandImage) -> list[str]:
    """Return the folders that an image of the user names, and those that the collectives of Ensayo need.

    The packages of the image come before those of Ensayo, so that the command imports its own versions.
    """
    named = [image.python_path] if image.python_path else []
    if plan.process_group == "gloo" or plan.workload.interpreter is None:
        return named
    return [*named, *plan.workload.interpreter.packages, sysconfig.get_path("purelib")]


def _tensorflow_cluster(plan: CommandPlan, node: NodePlan) -> dict[str, Any]:
    addresses = [str(worker.addresses.data) for worker in plan.node_plans_of_role("worker")]
    return {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": node.rank}}
