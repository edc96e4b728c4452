"""The measurement of pace measures: workers meet at a barrier, and what they did is told."""

import json
import subprocess
import sys


def test_workers_meet_after_every_step_and_tell_what_it_took() -> None:
    """Two processes of 10 ms steps; how well they keep them depends on the host, that they can't be early does not.

    A step makes up for the lateness of the one before, and for nothing else.
    """
    words = [sys.executable, "-m", "benchmarks.fidelity.pacing_program"]
    started = [
        subprocess.Popen([*words, str(rank), "2", "20", "0.0005", "0.01"], stdout=subprocess.PIPE) for rank in (0, 1)
    ]
    told = [json.loads(process.communicate(timeout=60)[0]) for process in started]

    for kept in told:
        assert len(kept["steps_s"]) == len(kept["late_s"]) == 20
        made_up = zip(kept["steps_s"][1:], kept["late_s"], strict=False)
        assert min(step_s + late_s for step_s, late_s in made_up) >= 0.01 - 1e-9
        assert 0 < kept["barrier_s"] < 0.01
