"""Command line of a node: `python -m services.node COMMAND`.

node NAME     run the node NAME of the plan until the run is over
health NAME   exit with code 0 if the node NAME reports that it is serving
measure NAME  run one of two nodes that measure the cost of a message on this host
simulate      run trials in virtual time. Each input line is a folder with plan.json; each output line is `done` or an
              error message.
"""

import argparse
import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from services.runtime.runner_pipe import exit_at_hang_up, exit_when_runner_ends
from services.schema.errors import DeclaredNodeLoss, UserError, first_error_in_group

# Other imports take a second, or several when many nodes start at once. They begin when the process can already end
# with the runner.
if TYPE_CHECKING:
    from services.plan import Plan

PLAN_PATH, SECRETS_FOLDER = Path("/run/ensayo/plan.json"), Path("/run/secrets")
TRIAL_FOLDER = Path("/run/ensayo")  # that has the folder of checkpoints, if the trial writes any
RUNNER_PIPE = Path("/run/ensayo/runner")  # whose write end the runner holds
EXIT_USER_ERROR = 2  # exit code when the plan or an argument is invalid


def main() -> int:
    """Run the node command that the command line selects, and return the exit code."""
    arguments = _parse_arguments()
    try:
        return int(arguments.start(arguments))
    except UserError as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_USER_ERROR


def _run_node(arguments: argparse.Namespace) -> int:
    exit_when_runner_ends(arguments.runner_pipe, arguments.name)
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")  # else gRPC warns when a node starts a user's command
    from services.transport.grpc.handshake_log import handshake_trace  # noqa: PLC0415 - see the top of the module

    with handshake_trace(), _paused_garbage_collection():
        from services.node.service import run_node  # noqa: PLC0415 - a trial in virtual time needs no gRPC

    plan = _read_plan(arguments.plan)
    return run_node(plan, arguments.name, arguments.secrets, arguments.plan, arguments.pipes, arguments.trial_folder)


@contextmanager
def _paused_garbage_collection() -> Iterator[None]:
    """Pause the garbage collector while modules are imported, and exclude their objects from later collections.

    These objects stay until the process ends. Collections among them would take a tenth of the time of the imports.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def _check_health(arguments: argparse.Namespace) -> int:
    from services.node.service import check_health  # noqa: PLC0415 - a trial in virtual time needs no gRPC

    return check_health(_read_plan(arguments.plan), arguments.name, arguments.secrets)


def _measure_message_costs(arguments: argparse.Namespace) -> int:
    exit_when_runner_ends(arguments.runner_pipe, arguments.name)
    from services.cluster.addresses import Address  # noqa: PLC0415 - see the top of the module
    from services.node.message_probe import (  # noqa: PLC0415 - only this command needs it
        REQUESTER,
        RESPONDER,
        MessageProbeNodeSettings,
        measure_message_timing,
    )

    host_ports = (text.rpartition(":") for text in arguments.addresses)
    addresses = [Address(host=host, port=int(port)) for host, _, port in host_ports]
    task = MessageProbeNodeSettings(
        node_name=arguments.name,
        addresses=dict(zip((REQUESTER, RESPONDER), addresses, strict=True)),
        secrets_folder=arguments.secrets,
        link_rate_bps=arguments.rate,
        transport_name=arguments.transport,
        is_shaped_by_transport=arguments.by_transport,
    )
    if message_cost := measure_message_timing(task):
        sys.stdout.write(f"{message_cost.model_dump_json()}\n")
    return 0


def _simulate_stdin_folders(_unused_options: argparse.Namespace) -> int:
    exit_at_hang_up(sys.stdin.fileno(), "the simulator")  # also during a trial, when no line is read
    with _paused_garbage_collection():
        from services.node.simulate import simulate_trial_to_folder  # noqa: PLC0415 - others need no virtual network
        from services.plan import TrainingPlan  # noqa: PLC0415 - see the top of the module

    replies, sys.stdout = sys.stdout, sys.stderr  # a user's model may print: the standard output has only the replies
    for line in sys.stdin:
        folder = Path(line.strip())
        try:
            plan = _read_plan(folder / "plan.json")
            if not isinstance(plan, TrainingPlan):
                raise UserError("a command can't run in virtual time; use engine docker or local")  # noqa: TRY301
            simulate_trial_to_folder(plan, folder / "logs")
        except Exception as error:  # noqa: BLE001 - the engine reports it; the next trial must still run
            cause = first_error_in_group(error)
            error_type = "" if isinstance(cause, DeclaredNodeLoss) else f"{type(cause).__name__}: "
            replies.write(f"{error_type}{cause}".replace("\n", " ") + "\n")
        else:
            replies.write("done\n")
        replies.flush()
    return 0


def _read_plan(plan_path: Path) -> "Plan":
    from pydantic import ValidationError  # noqa: PLC0415 - see the top of the module

    from services.plan import decode_plan  # noqa: PLC0415 - see the top of the module

    try:
        return decode_plan(plan_path.read_bytes())
    except ValidationError as error:
        problem = error.errors()[0]
        key_path = ".".join(map(str, problem["loc"])) or "workload_kind"
        raise UserError(f"{plan_path} is not a plan: {key_path}: {problem['msg']}") from error


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="services", description="Run one node of a trial; engines start it.")
    commands = parser.add_subparsers(required=True)
    for name, start in (("node", _run_node), ("health", _check_health)):
        command = commands.add_parser(name)
        command.add_argument("name")
        command.add_argument("--plan", type=Path, default=PLAN_PATH)
        command.add_argument("--secrets", type=Path, default=SECRETS_FOLDER)
        command.set_defaults(start=start)
        command.add_argument("--pipes", type=Path)
        command.add_argument("--runner-pipe", type=Path, default=RUNNER_PIPE)
        command.add_argument("--trial-folder", type=Path, default=TRIAL_FOLDER)
    command = commands.add_parser("measure")
    command.add_argument("name", choices=("requester", "responder"))
    command.add_argument("addresses", nargs=2, help="HOST:PORT of the requester and of the responder, in this order")
    command.add_argument("--secrets", type=Path, default=SECRETS_FOLDER)
    command.add_argument("--runner-pipe", type=Path, default=RUNNER_PIPE)
    command.add_argument("--rate", type=float, help="rate of the link between the nodes in bit/s; absent: not shaped")
    command.add_argument("--transport", choices=("grpc", "tcp"), default="grpc")
    command.add_argument("--by-transport", action="store_true", help="the transport shapes the link, not the kernel")
    command.set_defaults(start=_measure_message_costs)
    commands.add_parser("simulate").set_defaults(start=_simulate_stdin_folders)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
