"""A run in the form of another tool: all of it, or what can be read of it, with a word about the rest."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from analysis.exports import EXPORTERS, Exporter
from analysis.exports.believed import Believed
from analysis.exports.sound import read_sound
from analysis.reading.damage import FileDamage
from analysis.reading.run_folder import RunFolder
from services.schema.errors import HostError, UserError


@dataclass(frozen=True)
class Exported:
    """What came of it."""

    path: Path
    damage: tuple[FileDamage, ...]  # of the run's own files
    left_out: tuple[str, ...]  # what the tool has no place for
    doubted: tuple[str, ...] = ()  # trials that are in it and should not be believed, with the reasons


def export(run: Path, kind: str, out: Path | None = None) -> Exported:
    """Writes a run's folder for the tool of this kind into `out`; by default `exports/<kind>` of the run.

    The folder appears when it is complete: a broken-off export leaves none.

    Raises:
        UserError: no such kind, no run's folder, nothing in it that can be read, or `out` exists.
        HostError: the library that writes the format is not installed.
    """
    exporter, folder = named(kind), RunFolder(run)
    folder.check_is_run_folder()
    target = out or folder.exports_path / kind
    if target.exists():
        raise UserError(f"{target}: exists already; remove it, or name another folder with --out")
    table = read_sound(folder)
    if not table.trials:
        raise UserError("\n".join([f"{run}: no trial that can be read", *map(str, table.damage)]))
    partial = target.with_name(f".{target.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        left_out = tuple(exporter.write(table, partial))
        partial.rename(target)
    except ModuleNotFoundError as missing:
        raise HostError(_remedy(exporter, missing)) from missing
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    verdicts = [Believed.of(trial) for trial in table.trials if not trial.is_unreadable]  # of those, damage tells
    doubted = tuple(f"{verdict.trial}: {verdict}" for verdict in verdicts if not verdict.is_valid)
    return Exported(target, table.damage, left_out, doubted)


def named(kind: str) -> Exporter:
    """The exporter of that kind."""
    if kind not in EXPORTERS:
        raise UserError(f"--to {kind}: no such format; allowed are {', '.join(EXPORTERS)}")
    return EXPORTERS[kind]()  # type: ignore[call-arg] # members have a kind of their own by default


def _remedy(exporter: Exporter, missing: ModuleNotFoundError) -> str:
    """How to get what is missing."""
    if not exporter.package:
        raise missing
    return f"--to {exporter.kind} needs {missing.name}: pip install 'ensayo[{exporter.package}]'"
