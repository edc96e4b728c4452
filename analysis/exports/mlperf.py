"""Exporter of result folders for MLCommons' tools.

The folders are `<org>/systems` and `<org>/results/<system>/<benchmark>`.

Exported results are MLPerf-style; they are no MLPerf results. A system is one strategy on one number of workers with
one combination of swept values. The results of a system, `result_<k>.txt`, are its repeats. Aborted repeats are
included, because MLPerf's score counts a run that did not converge as the slowest run.
"""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, Literal

from analysis.exports.base import Exporter
from analysis.exports.system_description import describe_system
from analysis.exports.trial_verdict import TrialValidityVerdict
from analysis.mlperf import CHECKER_RULES_PATH
from analysis.reading import trial_record as record
from analysis.reading.logs.mllog import NodeLog
from analysis.reading.run_table import RunLogTables, TrialLogTables, read_node_logs

ORGANISATION = "ensayo"
UNSAFE_CHARACTERS = re.compile(r"[^A-Za-z0-9_.=-]+")


class MlperfExporter(Exporter):
    """Exporter of MLPerf-style results and system descriptions.

    The exporter also writes rules for MLCommons' compliance checker.
    """

    kind: Literal["mlperf"] = "mlperf"
    tool_name: ClassVar[str] = "MLCommons' compliance checker, system description checker and summarizer"
    file_suffix: ClassVar[str] = ".txt"

    def write(self, run_tables: RunLogTables, out_folder: Path) -> Iterator[str]:
        shutil.copyfile(CHECKER_RULES_PATH, out_folder / "rules.yaml")
        for name, repeats in group_trials_by_system(run_tables).items():
            verdicts = [TrialValidityVerdict.from_checking_trial(trial) for trial in repeats]
            system = describe_system(run_tables.folder.manifest, repeats[0].plan, name, verdicts)
            _write_text(out_folder / ORGANISATION / "systems" / f"{name}.json", f"{json.dumps(system, indent=2)}\n")
            for number, trial in enumerate(repeats):
                yield from _write_result_file(run_tables, trial, out_folder / ORGANISATION / "results" / name, number)


def group_trials_by_system(run_tables: RunLogTables) -> dict[str, list[TrialLogTables]]:
    """Return the trials of each system, by system name and sorted by repeat.

    A system is a combination of strategy, number of workers and swept values.
    """
    trials_by_system: dict[str, list[TrialLogTables]] = {}
    for trial in sorted(run_tables.trials, key=lambda trial: trial.plan.repeat):
        trials_by_system.setdefault(system_name_of_trial(trial), []).append(trial)
    return trials_by_system


def system_name_of_trial(trial: TrialLogTables) -> str:
    """Return the name of the system that a trial ran on, for example `ring-w4`.

    With a swept value, the name is for example `ring-w4-uplink=100mbit`.

    The name contains the strategy, the number of workers and the values of all other swept keys.
    """
    plan = trial.plan
    condition = [f"{key}={value}" for key, value in plan.swept_values]
    return UNSAFE_CHARACTERS.sub("_", "-".join([plan.label, f"w{plan.workers}", *condition]))


def _write_result_file(
    run_tables: RunLogTables, trial: TrialLogTables, folder: Path, result_number: int
) -> Iterator[str]:
    """Write the result file of a trial in MLPerf style.

    Yield a sentence if MLCommons' compliance checker will not accept the file.
    """
    name = trial.plan.trial
    logs = read_node_logs(run_tables.folder.trial_folder(name))
    log = logs.get("coordinator", NodeLog(()))
    if not log.events:
        yield f"{name}: the coordinator logged nothing; the trial has no result file"
        return
    target = folder / _benchmark_name(log) / f"result_{result_number}.txt"
    _write_text(target, "".join(record.merge_log_lines(logs)))
    if not trial.run_stop:
        yield f"{name}: {target.name} has no run_stop; the compliance checker will not accept it"


def _benchmark_name(coordinator_log: NodeLog) -> str:
    """Return the benchmark name recorded in a log.

    Return `unknown` if the beginning of the log is lost.
    """
    event = coordinator_log.last_event("submission_benchmark")
    return UNSAFE_CHARACTERS.sub("_", str(event.value)) if event else "unknown"


def _write_text(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
