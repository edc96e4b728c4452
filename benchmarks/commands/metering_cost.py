"""Time that the metering adds to a collective of a training script, measured against the script alone."""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import ensayo
from benchmarks.commands.cases import GLOO, SCRIPTS, Row
from benchmarks.commands.measurements import RowResult
from compose.engines.local import NODE_ENVIRONMENT
from services.schema.errors import EnsayoError

CALLS = 4000
CALL_TIME = re.compile(r"call_us=([\d.]+)")
METERING_ROW = Row(
    group="metering",
    description="time that the metering adds to an all-reduce of four bytes, one rank, engine local, in µs",
    at_most=15.0,
    engine="local",
)


def measure_metering_cost(rounds: int) -> RowResult:
    """Run a script of short collectives with and without metering in turns, and return the added time per collective.

    One rank, so that no other process takes part.
    """
    result = RowResult(METERING_ROW)
    for _ in range(rounds):
        try:
            result.values.append(_measure_with_metering() - _measure_without_metering())
        except EnsayoError as error:
            result.defects.append(str(error))
    return result


def _measure_without_metering() -> float:
    with tempfile.TemporaryDirectory(prefix="ensayo-benchmark-") as folder:
        rendezvous = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0", "RANK": "0", "WORLD_SIZE": "1"}
        environment = {**os.environ, **NODE_ENVIRONMENT, **rendezvous, "GLOO_SOCKET_IFNAME": "lo"}
        command = (sys.executable, str(SCRIPTS / "small_all_reduces.py"), str(CALLS))
        finished = subprocess.run(  # noqa: S603 - a script of this package
            command, cwd=folder, env=environment, capture_output=True, text=True, check=True
        )
        return _call_time_us(finished.stdout)


def _measure_with_metering() -> float:
    scenario = {
        "name": "metering-cost",
        "workload": {
            "kind": "command",
            "command": f"python small_all_reduces.py {CALLS}",
            "folder": str(SCRIPTS),
        },
        "cluster": {"workers": 1},
        "strategies": GLOO,
        "baseline": False,
        "attempts": 1,
    }
    with tempfile.TemporaryDirectory(prefix="ensayo-benchmark-") as folder:
        run = ensayo.rehearse(scenario, engine=METERING_ROW.engine, runs_folder=folder)
        (output,) = Path(run.folder).rglob("worker-0.err")
        (collectives,) = Path(run.folder).rglob("collectives.csv")
        if (metered := len(collectives.read_text(encoding="utf-8").splitlines()) - 1) < CALLS:
            raise EnsayoError(f"only {metered} of {CALLS} calls were metered")
        return _call_time_us(output.read_text(encoding="utf-8"))


def _call_time_us(output: str) -> float:
    if (match := CALL_TIME.search(output)) is None:
        raise EnsayoError(f"the script has printed no time of a call: {output[-500:]}")
    return float(match[1])
