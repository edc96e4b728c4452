"""`python -m services`: a node of a run, its health probe, or a whole trial in virtual time.

node NAME     live as the node NAME of the plan until the run is over
health NAME   exit with 0 when the node NAME answers that it is serving
pace …        keep a pace and say how well: rank, workers, steps, seconds of mathematics, seconds of a step
simulate      run trials in virtual time: a folder per line in, with plan.json; `done` or a complaint per line out
"""

import argparse
import sys
from pathlib import Path

from pydantic import ValidationError

from services.errors import UserError, first
from services.plan import Plan

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
    from services.service import live  # noqa: PLC0415 - a simulated trial needs no gRPC

    return live(_plan(arguments.plan), arguments.name, arguments.secrets, arguments.pipes)


def _health(arguments: argparse.Namespace) -> int:
    from services.service import probe  # noqa: PLC0415 - a simulated trial needs no gRPC

    return probe(_plan(arguments.plan), arguments.name, arguments.secrets)


def _simulate(_: argparse.Namespace) -> int:
    from services.simulate import simulate_into  # noqa: PLC0415 - a node of a container needs no fabric

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


def _pace(arguments: argparse.Namespace) -> int:
    from services.pacing_probe import Beat, beat  # noqa: PLC0415 - for measurements of a host alone

    what = Beat(arguments.rank, arguments.workers, arguments.steps, arguments.work_s, arguments.step_s)
    sys.stdout.write(f"{beat(what)}\n")
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
    pace = commands.add_parser("pace")
    for name in ("rank", "workers", "steps"):
        pace.add_argument(name, type=int)
    pace.add_argument("work_s", type=float)
    pace.add_argument("step_s", type=float, nargs="?")
    pace.set_defaults(start=_pace)
    commands.add_parser("simulate").set_defaults(start=_simulate)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
