"""The page that answers the scenario's question. `write` does everything; run it again after changing anything."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from analysis import fidelity, record, summary
from analysis.figures import FIGURES, Drawing, Run
from analysis.figures.save import save
from analysis.figures.style import FAINT, INK, PAPER, styled
from analysis.folder import RunFolder
from analysis.headline import headline
from analysis.summary import Summary
from analysis.table import read_run
from analysis.wording import difference, milliseconds, number, quantity, volume

PAGE_COLOURS = {INK: "var(--ink)", PAPER: "var(--paper)", FAINT: "var(--faint)"}


@dataclass(frozen=True)
class Panel:
    """A figure on the page."""

    name: str
    title: str
    caption: str
    svg: Markup


def write(run_folder: Path) -> Path:
    """Record, fidelity, summary, figures and page of a run, finished or not; returns the path of report.html.

    Raises:
        UserError: the folder is not a run's.
    """
    folder = RunFolder(run_folder)
    folder.check()
    table = read_run(folder)
    verdicts = summary.judge(table)
    for trial_folder, trial in zip(folder.trials, table.trials, strict=True):
        record.write(trial_folder, trial)
        fidelity.write(trial_folder, trial, verdicts[trial.plan.trial])
    numbers = summary.summarise(table, verdicts)
    summary.write(folder, numbers)
    panels = [_panel(drawing, folder) for drawing in draw(Run(table, numbers))]
    folder.report.write_text(page(folder, numbers, panels), encoding="utf-8")
    return folder.report


def draw(run: Run) -> list[Drawing]:
    """All figures that have something to show."""
    with styled():
        return [drawing for figure in FIGURES if (drawing := figure(run)) is not None]


def page(folder: RunFolder, numbers: Summary, panels: list[Panel]) -> str:
    """The page as one self-contained HTML document."""
    environment = Environment(
        loader=PackageLoader("analysis"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {each.__name__: each for each in (number, difference, milliseconds, volume, quantity)}
    return environment.get_template("report.html.j2").render(
        summary=numbers,
        headline=headline(numbers),
        reasons=reasons(numbers),
        panels=panels,
        happened=[(trial, event) for trial in numbers.trials for event in trial.events],
        manifest=flat(folder.manifest),
        command=_command(folder, numbers),
    )


def reasons(numbers: Summary) -> dict[str, list[str]]:
    """Every reason against believing the run, with the trials that it concerns."""
    found: dict[str, list[str]] = {}
    for trial in numbers.trials:
        for reason in trial.reasons:
            found.setdefault(reason, []).append(trial.id)
    return found


def flat(content: dict[str, Any], prefix: str = "") -> dict[str, str]:
    """The manifest as one column of names and values."""
    rows: dict[str, str] = {}
    for name, value in content.items():
        if isinstance(value, dict):
            rows |= flat(value, f"{prefix}{name} \N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK} ")
        elif value not in (None, "", []):
            rows[prefix + name] = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return rows


def _command(folder: RunFolder, numbers: Summary) -> str:
    """What the manifest says was typed, else the make target that does the same."""
    told = folder.manifest.get("command")
    return str(told) if told else f"make scenario NAME={numbers.scenario} ENGINE={numbers.engine}"


def _panel(drawing: Drawing, folder: RunFolder) -> Panel:
    svg = save(drawing, folder.figures).read_text(encoding="utf-8")
    return Panel(drawing.name, drawing.title, drawing.caption, _inline(svg, drawing))


def _inline(svg: str, drawing: Drawing) -> Markup:
    """The SVG for the page: no prologue or fixed size, ids of its own, colours that follow the page's theme."""
    body = svg[svg.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = re.sub(
        r'(<svg[^>]*?) width="[^"]*"', r"\1", re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", body, count=1), count=1
    )
    body = re.sub(r'(id="|url\(#|href="#)', rf"\g<1>{drawing.name}-", body)
    for fixed, variable in PAGE_COLOURS.items():
        body = body.replace(fixed, variable)
    return Markup(body.replace("<svg", '<svg role="img" aria-hidden="true"', 1))  # noqa: S704 -- our own drawing
