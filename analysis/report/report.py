"""The page that answers the scenario's question. `write` does everything; run it again after changing anything."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, PrefixLoader, StrictUndefined, Template
from markupsafe import Markup

from analysis.figures import FIGURES, Drawing, Run
from analysis.figures.drawing.balance import printed
from analysis.figures.drawing.save import save
from analysis.figures.drawing.style import FAINT, INK, ON_DARK, PAPER, styled
from analysis.reading.parallel import ProcessPool, create_process_pool
from analysis.reading.run_folder import RunFolder
from analysis.report.headline import headline
from analysis.report.summary_text import brief
from analysis.report.wording import difference, milliseconds, number, quantity, sentence, volume
from analysis.results import summary
from analysis.results.examine import analyse_run
from analysis.results.excluded_trials import count_planned_trials
from analysis.results.summary import RunSummary

PAGE_COLOURS = {INK: "var(--ink)", PAPER: "var(--paper)", FAINT: "var(--faint)"} | {
    tint: f"var(--t{tint[1:]})" for tint in ON_DARK
}


FILTERS = (number, difference, milliseconds, volume, quantity, printed)


@dataclass(frozen=True)
class Panel:
    """A figure on the page."""

    name: str
    title: str
    caption: str
    svg: Markup


def write(run_folder: Path, team: ProcessPool | None = None) -> Path:
    """Record, fidelity, summary, figures and page of a run, finished or not; returns the path of report.html.

    `team`: who does it, if not one for this alone; one that began before this module was imported has waited less.

    Raises:
        UserError: the folder is not a run's.
    """
    folder = RunFolder(run_folder)
    if team is None:
        with create_process_pool(folder.log_bytes) as own:
            own.preload("analysis.results.trial")
            return write(run_folder, own)
    table, numbers = analyse_run(folder, team, write=True)
    team.preload(__name__)  # while this process has the first figures to draw
    summary.write_summary(folder, numbers)
    panels = team.map(partial(panel, folder=folder.figures_path), draw(Run(table, numbers)))
    folder.report_path.write_text(page(folder, numbers, panels), encoding="utf-8")
    return folder.report_path


def draw(run: Run) -> Iterator[Drawing]:
    """All figures that have something to show."""
    for figure in FIGURES:
        with styled():
            drawing = figure(run)
        if drawing is not None:
            yield drawing


def page(folder: RunFolder, numbers: RunSummary, panels: list[Panel]) -> str:
    """The page as one self-contained HTML document."""
    return template("report/report.html.j2").render(
        summary=numbers,
        headline=headline(numbers),
        brief=brief(numbers),
        reasons=reasons(numbers),
        panels=panels,
        total=count_planned_trials(numbers),
        happened=[(trial, event) for trial in numbers.trials for event in trial.events],
        manifest=flat(folder.manifest),
        command=_command(folder, numbers),
    )


def template(name: str) -> Template:
    """A page to be filled in; a name that it lacks is an error."""
    environment = Environment(
        loader=PrefixLoader(
            {package: PackageLoader(f"analysis.{package}", ".") for package in ("comparison", "mlperf", "report")}
        ),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {each.__name__: each for each in FILTERS}
    environment.globals["tints"] = ON_DARK
    return environment.get_template(name)


def reasons(numbers: RunSummary) -> dict[str, list[str]]:
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


def _command(folder: RunFolder, numbers: RunSummary) -> str:
    """What the manifest says was typed, else the make target that does the same."""
    told = folder.manifest.get("command")
    return str(told) if told else f"make scenario NAME={numbers.scenario} ENGINE={numbers.engine}"


def panel(drawing: Drawing, folder: Path) -> Panel:
    """Writes a drawing's files into `folder` and gives it for the page."""
    svg = save(drawing, folder).read_text(encoding="utf-8")
    return Panel(drawing.name, sentence(drawing.title), drawing.caption, _inline(svg, drawing))


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
