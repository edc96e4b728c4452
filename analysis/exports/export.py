"""Export of a run's readable trials into the format of another tool, with a list of the data left out."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from analysis.exports import EXPORTERS, Exporter
from analysis.exports.readable_trials import read_readable_trials
from analysis.exports.trial_verdict import TrialValidityVerdict
from analysis.reading.damage import FileProblem
from analysis.reading.run_folder import RunFolder
from services.schema.errors import HostError, UserError


@dataclass(frozen=True)
class RunExportReport:
    """Result of an export: the path of the files, damage of the run, data left out, and bad verdicts of trials."""

    path: Path
    damage: tuple[FileProblem, ...]  # damaged files of the exported run
    omissions: tuple[str, ...]  # one sentence per part of the run that was not exported
    invalid_or_degraded_trials: tuple[str, ...] = ()  # exported trials that are not valid, with the reasons


def export_run(run_path: Path, format_name: str, out_path: Path | None = None) -> RunExportReport:
    """Export a run into the folder `out_path`.

    The default folder is `exports/<format>` in the folder of the run.

    Files are written to a temporary folder, which is renamed at the end. An interrupted export leaves no folder.

    Raises:
        UserError: the format is unknown, `run_path` is not the folder of a run, no trial can be read, or `out_path`
            exists.
        HostError: the library that writes the format is not installed.
    """
    exporter, folder = make_exporter(format_name), RunFolder(run_path)
    folder.check_is_run_folder()
    target = out_path or folder.exports_folder_path / format_name
    if target.exists():
        raise UserError(f"{target}: exists already; remove the folder, or name another one with --out")
    table = read_readable_trials(folder)
    if not table.trials:
        raise UserError("\n".join([f"{run_path}: no trial can be read", *map(str, table.file_damage)]))
    partial = target.with_name(f".{target.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        omissions = tuple(exporter.write(table, partial))
        partial.rename(target)
    except ModuleNotFoundError as error:
        raise HostError(_missing_package_message(exporter, error)) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    # Unreadable trials have no verdict here, because `damage` already lists them.
    verdicts = [TrialValidityVerdict.from_checking_trial(trial) for trial in table.trials if not trial.is_unreadable]
    not_valid = tuple(f"{verdict.trial_name}: {verdict}" for verdict in verdicts if not verdict.is_valid)
    return RunExportReport(target, table.file_damage, omissions, not_valid)


def make_exporter(format_name: str) -> Exporter:
    """Return the exporter for a format name, such as `csv`.

    Raises:
        UserError: the format is unknown.
    """
    if format_name not in EXPORTERS:
        raise UserError(f"--to {format_name}: no such format; allowed are {', '.join(EXPORTERS)}")
    return EXPORTERS[format_name]()  # type: ignore[call-arg] # every exporter has a default for `kind`


def _missing_package_message(exporter: Exporter, error: ModuleNotFoundError) -> str:
    """Return the error message that explains how to install the library that an exporter needs.

    Raises:
        ModuleNotFoundError: the exporter needs no optional library, so the error is a bug in Ensayo.
    """
    if not exporter.pip_requirement:
        raise error
    return f"--to {exporter.kind} needs {error.name}: pip install '{exporter.pip_requirement}'"
