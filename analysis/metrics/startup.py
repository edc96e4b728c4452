"""Time that the nodes of a trial need before they train."""

from analysis.reading.run_table import TrialLogTables


def startup_s(trial: TrialLogTables) -> float | None:
    """Return the wall seconds from the start of the nodes to the first training step.

    None where nodes do not start (engine `simulated`), where no step began, or where the engine did not record its
    stages. The time is the sum of three parts:

    - the engine's stage `up`: creation and start of the nodes, without the build of their image;
    - its stage `gate`, in which nodes load data and model and connect to each other, without the probes of the links
      (stage `probe`), which check the emulation and are no part of training;
    - the time from the log event `run_start` to the first step.

    Start-up runs at the speed of this host, so the time is not divided by the dilation.
    """
    stages_s = trial.status.get("timings_s") or {}
    if not {"up", "gate", "probe"} <= stages_s.keys() or not len(trial.steps):
        return None
    first_step_s = float(trial.steps["start_s"].min()) * trial.plan.dilation
    return float(stages_s["up"] + stages_s["gate"] - stages_s["probe"]) + first_step_s
