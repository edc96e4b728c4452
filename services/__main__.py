"""`python -m services`: a node of a run, its health probe, or a whole trial in virtual time.

    node NAME     live as the node NAME of the plan until the run is over
    health NAME   exit with 0 when the node NAME answers that it is serving
    simulate DIR  run the plan in virtual time, writing DIR/<node>.log
"""

import argparse
import sys
from pathlib import Path

from services.plan import Plan

PLAN, SECRETS = Path("/run/ensayo/plan.json"), Path("/run/secrets")


def main() -> int:
    """Start what the arguments say."""
    arguments = _arguments()
    plan = Plan.model_validate_json(arguments.plan.read_bytes())
    return int(arguments.start(plan, arguments))


def _node(plan: Plan, arguments: argparse.Namespace) -> int:
    from services.service import live  # noqa: PLC0415 - a simulated trial needs no gRPC

    return live(plan, arguments.name, arguments.secrets)


def _health(plan: Plan, arguments: argparse.Namespace) -> int:
    from services.service import probe  # noqa: PLC0415 - a simulated trial needs no gRPC

    return probe(plan, arguments.name, arguments.secrets)


def _simulate(plan: Plan, arguments: argparse.Namespace) -> int:
    from services.simulate import simulate_into  # noqa: PLC0415 - a node of a container needs no fabric

    simulate_into(plan, arguments.folder)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="services", description="A node of a run; engines start it.")
    commands = parser.add_subparsers(required=True)
    for name, start in (("node", _node), ("health", _health)):
        command = commands.add_parser(name)
        command.add_argument("name")
        command.add_argument("--plan", type=Path, default=PLAN)
        command.add_argument("--secrets", type=Path, default=SECRETS)
        command.set_defaults(start=start)
    simulate = commands.add_parser("simulate")
    simulate.add_argument("folder", type=Path)
    simulate.add_argument("--plan", type=Path, default=PLAN)
    simulate.set_defaults(start=_simulate)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
