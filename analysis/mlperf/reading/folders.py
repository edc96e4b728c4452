"""What did a round of MLPerf Training result in? Reads the folders that MLCommons publishes, of any round.

    <submitter>/systems/<system>.json
    <submitter>/results/<system>/<benchmark>/result_*.txt  scaling.json

What cannot be scored is left out with its reason, and the rest is read: in a round of a thousand logs something is
always odd.
"""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from pydantic import ValidationError

from analysis.mlperf.reading.results import Result, Results, read_csv
from analysis.mlperf.reading.scoring import Run, Score, Unscored, judge, score
from analysis.reading import mllog
from services.schema.errors import UserError

Moments: TypeAlias = frozenset[tuple[float | None, float | None]]  # start and stop of each run


@dataclass(frozen=True)
class Listing:
    """One folder of logs."""

    path: Path
    root: Path  # of the round

    @property
    def benchmark(self) -> str:
        """The workload's folder."""
        return self.path.name

    @property
    def system(self) -> str:
        """The system's folder; logs often say something else, or nothing."""
        return self.path.parent.name

    @property
    def description(self) -> Path:
        """What the submitter says of the system."""
        return self.path.parents[2] / "systems" / f"{self.system}.json"

    @property
    def logs(self) -> list[Path]:
        """Named by number, or by time and number."""
        return sorted(self.path.glob("result_*.txt"))

    @property
    def shown(self) -> str:
        """For people: below the round's root."""
        return str(self.path.relative_to(self.root))


def read(source: Path) -> Results:
    """The results of a CSV, or of a folder of published logs (a round's or one submitter's).

    Raises:
        UserError: the CSV is wrong, or there is nothing to read.
    """
    return read_folder(source) if source.is_dir() else read_csv(source)


def read_folder(root: Path) -> Results:
    """The closed division of a round, scored from its logs.

    Raises:
        UserError: no folder below `root` holds a log.
    """
    listings = list(_listings(root))
    if not listings:
        raise UserError(f"{root}: no logs; looked for <submitter>/results/<system>/<benchmark>/result_*.txt")
    rows: list[Result] = []
    left_out: list[str] = []
    seen: dict[Moments, str] = {}
    for listing in listings:
        runs = [judge(mllog.read_log(path)) for path in listing.logs]
        moments = frozenset((run.start_ms, run.stop_ms) for run in runs)
        try:
            _refuse_again(moments, seen)
            rows.append(_result(listing, runs))
            seen[moments] = listing.shown
        except Unscored as error:
            left_out.append(f"{listing.shown}: {error}")
    if not rows:
        raise UserError("\n".join([f"{root}: none of {len(listings)} folders of logs has a score", *left_out]))
    return Results(tuple(rows), str(root), tuple(left_out))


def _refuse_again(moments: Moments, seen: Mapping[Moments, str]) -> None:
    """Some list a system once more with power measurements; one set of runs is one result."""
    if moments in seen:
        raise Unscored(f"the same runs as {seen[moments]}")


def _listings(root: Path) -> Iterator[Listing]:
    """Folders that hold logs, the root's own first where it is one submitter's."""
    folders = {log.parent for depth in ("", "*/") for log in root.glob(f"{depth}results/*/*/result_*.txt")}
    return (Listing(folder, root) for folder in sorted(folders))


def _result(listing: Listing, runs: list[Run]) -> Result:
    described = _read_json(listing.description)
    if (division := str(described.get("division", "closed")).lower()) != "closed":
        raise Unscored(f"division {division}")
    factor = _scaling_factor(listing.path / "scaling.json")
    found = _score(listing, runs, factor)
    scored = {"minutes": found.minutes, "runs": found.runs, "runs_not_counted": found.not_counted}
    try:
        return Result(
            **_told(described, listing),
            **scored,
            rcp_scaling_factor=factor,
            source=f"{listing.shown}/result_*.txt",
            note=_note(listing, runs),
        )
    except ValidationError as error:
        name = str(error.errors()[0]["loc"][0])
        allowed = Result.model_fields[name].description
        raise Unscored(f"{listing.description.name}: {name} should be {allowed}") from None


def _score(listing: Listing, runs: list[Run], factor: float) -> Score:
    """Raises Unscored with every run that does not count: a number of them tells nobody which logs to look at."""
    try:
        return score(runs, factor, listing.benchmark)
    except Unscored as error:
        raise Unscored("; ".join([str(error), *_doubts(listing, runs)])) from None


def _told(described: Mapping[str, Any], listing: Listing) -> dict[str, Any]:
    """Who, where and with what: columns of the table, from folders and description."""
    nodes = _count(described, "number_of_nodes", listing)
    texts = {"accelerator": "accelerator_model_name", "framework": "framework", "system_name": "system_name"}
    told = {column: str(described.get(key, "")).strip() for column, key in texts.items()}
    return told | {
        "benchmark": listing.benchmark,
        "submitter": str(described.get("submitter") or listing.path.parents[2].name).strip(),
        "system": listing.system,
        "availability": str(described.get("status", "")).strip(),
        "nodes": nodes,
        "accelerator_count": nodes * _count(described, "accelerators_per_node", listing),
    }


def _note(listing: Listing, runs: list[Run]) -> str:
    return "; ".join(f"{doubt}: counted as the slowest run" for doubt in _doubts(listing, runs))


def _doubts(listing: Listing, runs: list[Run]) -> list[str]:
    """Which logs hold a run that does not count, each with its reason."""
    return [f"{log.name} {run.why_not}" for log, run in zip(listing.logs, runs, strict=True) if run.why_not]


def _read_json(path: Path) -> Mapping[str, Any]:
    """Raises Unscored: there is no such file, or it holds no JSON object."""
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig", errors="replace"))
    except (OSError, ValueError) as error:
        raise Unscored(f"{path.parent.name}/{path.name} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise Unscored(f"{path.parent.name}/{path.name} holds no JSON object")
    return content


def _scaling_factor(path: Path) -> float:
    """1 where there is no such file: convergence was not faster than the reference allows."""
    if not path.exists():
        return 1.0
    factor = _read_json(path).get("scaling_factor")
    if isinstance(factor, bool) or not isinstance(factor, int | float) or not 0 < factor < math.inf:
        raise Unscored(f"{path.name} gives no scaling_factor above 0 but {factor!r}")
    return float(factor)


def _count(described: Mapping[str, Any], key: str, listing: Listing) -> int:
    """Submitters write numbers and strings alike."""
    text = str(described.get(key, "")).strip()
    if not text.isdecimal() or int(text) < 1:
        raise Unscored(f"{listing.description.name}: {key} should be a whole number at least 1, not {text!r}")
    return int(text)
