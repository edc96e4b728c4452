"""`python -m services.node`: a node of a run, its health probe, or a whole trial in virtual time.

node NAME     live as the node NAME of the plan until the run is over
health NAME   exit with 0 when the node NAME answers that it is serving
measure NAME  be one of two nodes that measure what a message costs on this host
simulate      run trials in virtual time: a folder per line in, with plan.json; `done` or a complaint per line out
"""

import argparse
import sys
from pathlib import Path

from pydantic import ValidationError

from services.cluster.addresses import Address
from services.plan import Plan
from services.schema.errors import UserError, first

PLAN, SECRETS = Path("/run/ensayo/plan.json"), Path("/run/secrets")
USER = 2  # exit code of a mistake in what was given


def main() -> int:
    """Start what the arguments say."""
    arguments = _arguments()
    try:
        return int(arguments.start(arguments))
    except UserError as error:
        sys.stderr.write(f"{error}\n")
        return USER


def _node(arguments: argparse.Namespace) -> int:
    from services.node.service import live  # noqa: PLC0415 - a simulated trial needs no gRPC

    return live(_plan(arguments.plan), arguments.name, arguments.secrets, arguments.pipes)


def _health(arguments: argparse.Namespace) -> int:
    from services.node.service import probe  # noqa: PLC0415 - a simulated trial needs no gRPC

    return probe(_plan(arguments.plan), arguments.name, arguments.secrets)


def _measure(arguments: argparse.Namespace) -> int:
    from services.node.message_probe import ANSWERS, ASKS, Task, measure  # noqa: PLC0415 - a node has no use for it

    hosts = (text.rpartition(":") for text in arguments.addresses)
    addresses = [Address(host=host, port=int(port)) for host, _, port in hosts]
    task = Task(
        name=arguments.name,
        addresses=dict(zip((ASKS, ANSWERS), addresses, strict=True)),
        secrets=arguments.secrets,
        rate_bps=arguments.rate,
        transport=arguments.transport,
        by_transport=arguments.by_transport,
    )
    if found := measure(task):
        sys.stdout.write(f"{found.model_dump_json()}\n")
    return 0


def _simulate(_: argparse.Namespace) -> int:
    from services.node.simulate import simulate_into  # noqa: PLC0415 - a node of a container needs no fabric

    for line in sys.stdin:
        folder = Path(line.strip())
        try:
            simulate_into(_plan(folder / "plan.json"), folder / "logs")
        except Exception as error:  # noqa: BLE001 - a trial that fails must not end those after it; the engine reports it
            cause = first(error)
            sys.stdout.write(f"{type(cause).__name__}: {cause}".replace("\n", " ") + "\n")
        else:
            sys.stdout.write("done\n")
        sys.stdout.flush()
    return 0


def _plan(path: Path) -> Plan:
    try:
        return Plan.model_validate_json(path.read_bytes())
    except ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(map(str, problem["loc"]))
        raise UserError(f"{path} is not a plan: {where}: {problem['msg']}") from error


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="services", description="A node of a run; engines start it.")
    commands = parser.add_subparsers(required=True)
    for name, start in (("node", _node), ("health", _health)):
        command = commands.add_parser(name)
        command.add_argument("name")
        command.add_argument("--plan", type=Path, default=PLAN)
        command.add_argument("--secrets", type=Path, default=SECRETS)
        command.set_defaults(start=start)
        command.add_argument("--pipes", type=Path)
    command = commands.add_parser("measure")
    command.add_argument("name", choices=("asks", "answers"))
    command.add_argument("addresses", nargs=2, help="HOST:PORT of the two, in this order")
    command.add_argument("--secrets", type=Path, default=SECRETS)
    command.add_argument("--rate", type=float, help="bit/s of the link between them; not shaped when absent")
    command.add_argument("--transport", choices=("grpc", "tcp"), default="grpc")
    command.add_argument("--by-transport", action="store_true", help="the transport shapes it")
    command.set_defaults(start=_measure)
    commands.add_parser("simulate").set_defaults(start=_simulate)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
