"""Result folders as MLCommons' tools read them: `<org>/results/<system>/<benchmark>/result_<k>.txt`, `<org>/systems`.

MLPerf-style; not an MLPerf result. A system is one strategy on one number of workers under one condition; its results
are the repeats, aborted ones included: MLPerf's score counts a run that did not converge as the slowest.
"""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, Literal

from analysis.exports.base import Exporter
from analysis.exports.believed import Believed
from analysis.exports.system import describe
from analysis.mlperf import RULES
from analysis.reading import trial_record as record
from analysis.reading.mllog import NodeLog
from analysis.reading.run_table import RunTable, TrialTable, read_logs

ORG = "ensayo"
UNSAFE = re.compile(r"[^A-Za-z0-9_.=-]+")


class Mlperf(Exporter):
    """Results and system descriptions, and `rules.yaml`, our rules for the compliance checker."""

    kind: Literal["mlperf"] = "mlperf"
    reader: ClassVar[str] = "MLCommons' compliance checker, system description checker and summarizer"
    suffix: ClassVar[str] = ".txt"

    def write(self, run: RunTable, out: Path) -> Iterator[str]:
        shutil.copyfile(RULES, out / "rules.yaml")
        for name, repeats in systems(run).items():
            results = [Believed.of(trial) for trial in repeats]
            text = json.dumps(describe(run.folder.manifest, repeats[0].plan, name, results), indent=2)
            _write(out / ORG / "systems" / f"{name}.json", f"{text}\n")
            for number, trial in enumerate(repeats):
                yield from _result(run, trial, out / ORG / "results" / name, number)


def systems(run: RunTable) -> dict[str, list[TrialTable]]:
    """The trials of each system, by its name, in the order of their repeats."""
    found: dict[str, list[TrialTable]] = {}
    for trial in sorted(run.trials, key=lambda trial: trial.plan.repeat):
        found.setdefault(system_name(trial), []).append(trial)
    return found


def system_name(trial: TrialTable) -> str:
    """`ring-w4`, with the swept keys other than the number of workers: `ring-w4-uplink=100mbit`."""
    planned = trial.plan
    condition = [f"{key}={value}" for key, value in planned.condition]
    return UNSAFE.sub("_", "-".join([planned.label, f"w{planned.workers}", *condition]))


def _result(run: RunTable, trial: TrialTable, folder: Path, number: int) -> Iterator[str]:
    """One result file; says why a checker will not accept it, as far as that is known here."""
    name = trial.plan.trial
    source = run.folder.trial_folder(name)
    logs = read_logs(source)
    log = logs.get("coordinator", NodeLog(()))
    if not log.events:
        yield f"{name}: the coordinator logged nothing; no result"
        return
    target = folder / _benchmark(log) / f"result_{number}.txt"
    _write(target, "".join(record.merge_log_lines(logs)))
    if not trial.run_stop:
        yield f"{name}: {target.name} has no run_stop; the compliance checker will not accept it"


def _benchmark(log: NodeLog) -> str:
    """As the log says; `unknown` where its beginning is lost."""
    told = log.last_event("submission_benchmark")
    return UNSAFE.sub("_", str(told.value)) if told else "unknown"


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
