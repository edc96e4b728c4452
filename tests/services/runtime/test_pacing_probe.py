"""The pacing program measures the step times of workers that synchronise at a barrier."""

import json
import subprocess
import sys


def test_workers_synchronise_after_every_step_and_report_its_duration() -> None:
    """Two processes have steps of 10 ms. How late a step is depends on the host, but no step may be early.

    A step makes up only for the lateness of the step before.
    """
    command = [sys.executable, "-m", "benchmarks.fidelity.pacing.program"]
    processes = [
        subprocess.Popen([*command, str(rank), "2", "20", "0.0005", "0.01"], stdout=subprocess.PIPE) for rank in (0, 1)
    ]
    reports = [json.loads(process.communicate(timeout=60)[0]) for process in processes]

    for report in reports:
        assert len(report["steps_s"]) == len(report["late_s"]) == 20
        steps_and_lateness = zip(report["steps_s"][1:], report["late_s"], strict=False)
        assert min(step_s + late_s for step_s, late_s in steps_and_lateness) >= 0.01 - 1e-9
        assert 0 < report["barrier_s"] < 0.01
