"""Write the report of a run: summary, figures and HTML page, all computed from the logs of the run."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, PrefixLoader, StrictUndefined, Template
from markupsafe import Markup

from analysis.figures import FIGURES, AnalysedRun, CaptionedFigure
from analysis.figures.drawing.balance import format_balance_rule
from analysis.figures.drawing.save import save_drawing_files
from analysis.figures.drawing.style import BACKGROUND, DARK_PAGE_COLOURS, FAINT_GREY, FOREGROUND, figure_style_context
from analysis.reading.parallel import ProcessPool, create_process_pool
from analysis.reading.plan_view import TrialPlan
from analysis.reading.run_folder import RunFolder
from analysis.report import wording
from analysis.report.evaluation_note import evaluation_note
from analysis.report.headline import headline_sentences
from analysis.report.summary_text import summary_sentences
from analysis.report.tables.communication_table import make_communication_table
from analysis.report.tables.event_table import make_event_table
from analysis.report.tables.failure_table import make_failure_table
from analysis.report.tables.reference_table import make_reference_table
from analysis.report.tables.regression_table import make_regression_table
from analysis.report.tables.strategy_choice_table import make_strategy_choice_tables
from analysis.report.tables.strategy_table import make_strategy_table
from analysis.report.tables.training_settings import make_training_settings_table
from analysis.results import summary
from analysis.results.analyse_run import analyse_run
from analysis.results.excluded_trials import count_planned_trials
from analysis.results.strategy_map import make_strategy_map
from analysis.results.summary import RunSummary
from services.cluster.undeclared_rates import describe_undeclared_rates
from services.runtime.data_protection import describe_data_protection

PAGE_COLOURS = {FOREGROUND: "var(--ink)", BACKGROUND: "var(--paper)", FAINT_GREY: "var(--faint)"} | {
    tint: f"var(--t{tint[1:]})" for tint in DARK_PAGE_COLOURS
}


TEMPLATE_FILTERS: dict[str, Callable[..., str]] = {  # name in templates -> function
    "balance_rule": format_balance_rule,
    "difference": wording.format_signed_percentage,
    "milliseconds": wording.format_milliseconds,
    "number": wording.format_number,
    "quantity": wording.format_quantity,
    "bytes": wording.format_bytes,
    "trial_names": wording.format_trial_names,
}


@dataclass(frozen=True)
class FigurePanel:
    """Figure on the HTML page of a report: title, caption and inline SVG."""

    name: str
    title: str
    caption: str
    svg: Markup


def write_report(run_folder: str | Path, pool: ProcessPool | None = None) -> Path:
    """Write the HTML report of a run, its figures, summary.json and trial files.

    Return the path of the HTML page.

    Args:
        run_folder: folder of the run.
        pool: processes that share the work; None starts some for this report only. A pool that was
            started before this module was imported has its processes ready earlier.

    Raises:
        UserError: `run_folder` is not the folder of a run.
    """
    folder = RunFolder(Path(run_folder))
    if pool is None:
        with create_process_pool(folder.total_log_bytes) as own_pool:
            own_pool.preload_module("analysis.results.analyse_trial")
            return write_report(run_folder, own_pool)
    table, run_summary = analyse_run(folder, pool, write=True)
    # The pool's processes import this module while this process draws the first figures.
    pool.preload_module(__name__)
    summary.write_summary(folder, run_summary)
    save = partial(write_figure_for_html_page, figures_folder=folder.figures_folder_path)
    panels = pool.map(save, draw_report_figures(AnalysedRun(table, run_summary)))
    page = render_report_page(folder, run_summary, panels, [trial.plan for trial in table.trials])
    folder.report_path.write_text(page, encoding="utf-8")
    return folder.report_path


def draw_report_figures(analysed_run: AnalysedRun) -> Iterator[CaptionedFigure]:
    """Yield all figures that apply to a run, such as the figure of the speedup."""
    for figure in FIGURES.values():
        with figure_style_context():
            drawing = figure.draw(analysed_run)
        if drawing is not None:
            yield replace(drawing, caption=" ".join((drawing.caption, *_payload_sentences(analysed_run.summary))))


def _payload_sentences(run_summary: RunSummary) -> Iterator[str]:
    """Yield one sentence for each declared payload of a run."""
    return (f"{wording.capitalise_first_letter(payload)}." for payload in run_summary.payloads)


def render_report_page(
    run_folder: RunFolder, run_summary: RunSummary, panels: list[FigurePanel], trial_plans: Sequence[TrialPlan] = ()
) -> str:
    """Return the page of a report as one self-contained HTML document."""
    first_sentence, *other_sentences = headline_sentences(run_summary)
    title, rest_of_first_sentence = wording.split_long_sentence(first_sentence)
    return load_template("report/report.html.j2").render(
        summary=run_summary,
        title=title,
        explanations=[sentence for sentence in (rest_of_first_sentence, *other_sentences) if sentence],
        summary_sentences=summary_sentences(run_summary),
        strategy_table=make_strategy_table(run_summary),
        strategy_choices=make_strategy_choice_tables(run_summary.trials),
        evaluation_note=evaluation_note(run_summary),
        regression_table=make_regression_table(run_summary),
        reference_rows=make_reference_table(run_summary),
        trials_by_reason=trial_ids_by_verdict_reason(run_summary),
        repeated_trials=list(wording.describe_repeated_trials(asdict(trial) for trial in run_summary.trials)),
        continued_trials=list(wording.describe_continued_trials(asdict(trial) for trial in run_summary.trials)),
        panels=panels,
        strategy_map=make_strategy_map(run_summary),
        communication_rows=make_communication_table(run_summary.trials),
        collective_trials=[
            trial
            for trial in run_summary.trials
            if trial.workers > 1 and (trial.collectives or trial.extra_collectives)
        ],
        training_settings=make_training_settings_table(trial_plans),
        undeclared_rates=list(dict.fromkeys(_undeclared_rate_sentences(trial_plans))),
        total=count_planned_trials(run_summary),
        owners=[
            (trial, counts)
            for trial in run_summary.trials
            for counts in trial.worker_samples
            if counts.owned is not None
        ],
        failures=make_failure_table(run_summary.trials),
        connection_breaks=[(trial, each) for trial in run_summary.trials for each in trial.connection_breaks],
        message_problems=[(trial, each) for trial in run_summary.trials for each in trial.message_problems],
        protections=list(dict.fromkeys(_protection_sentences(trial_plans))),
        failed_checkpoints=[(trial, each) for trial in run_summary.trials for each in trial.failed_checkpoints],
        events=make_event_table(run_summary.trials),
        manifest=flatten_manifest({key: value for key, value in run_folder.manifest.items() if key != "skipped"}),
        command=_reproduce_command(run_folder, run_summary),
    )


def _undeclared_rate_sentences(trial_plans: Sequence[TrialPlan]) -> Iterator[str]:
    """Yield sentences on nodes whose links are not limited, though those of other nodes are."""
    for plan in trial_plans:
        yield from describe_undeclared_rates(plan.nodes, plan.network)


def _protection_sentences(trial_plans: Sequence[TrialPlan]) -> Iterator[str]:
    """Yield sentences on the protection of messages; frameworks of commands send messages of their own."""
    for plan in trial_plans:
        if plan.data_protection and plan.workload_kind == "training":
            yield f"{wording.capitalise_first_letter(describe_data_protection(plan.data_protection, plan.engine))}."


def load_template(template_name: str) -> Template:
    """Return the Jinja template of a page, such as "report/report.html.j2".

    Undefined variables raise an error.
    """
    environment = Environment(
        loader=PrefixLoader(
            {package: PackageLoader(f"analysis.{package}", ".") for package in ("comparison", "mlperf", "report")}
        ),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= TEMPLATE_FILTERS
    environment.globals["tints"] = DARK_PAGE_COLOURS
    return environment.get_template(template_name)


def trial_ids_by_verdict_reason(run_summary: RunSummary) -> dict[str, list[str]]:
    """Return the ids of trials with the fidelity verdict `degraded` or `invalid`.

    The ids are grouped by the reason for the verdict.
    """
    by_reason: dict[str, list[str]] = {}
    for trial in run_summary.trials:
        for reason in trial.reasons:
            by_reason.setdefault(reason, []).append(trial.id)
    return by_reason


def flatten_manifest(manifest: dict[str, Any], key_prefix: str = "") -> dict[str, str]:
    """Return the manifest of a run as a flat mapping of key paths to texts.

    The manifest is nested; empty values are left out.
    """
    rows: dict[str, str] = {}
    for name, value in manifest.items():
        if isinstance(value, dict):
            rows |= flatten_manifest(value, f"{key_prefix}{name} \N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK} ")
        elif value not in (None, "", []):
            rows[key_prefix + name] = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return rows


def _reproduce_command(run_folder: RunFolder, run_summary: RunSummary) -> str:
    """Return the recorded command that started a run.

    If it is not recorded, return a command that repeats the run.
    """
    command = run_folder.manifest.get("command")
    return str(command) if command else f"ensayo run {run_summary.scenario} --engine {run_summary.engine}"


def write_figure_for_html_page(figure_drawing: CaptionedFigure, figures_folder: Path) -> FigurePanel:
    """Write the image and data files of a figure into a folder, and return the figure for an HTML page."""
    svg = save_drawing_files(figure_drawing, figures_folder).read_text(encoding="utf-8")
    title = wording.capitalise_first_letter(figure_drawing.title)
    return FigurePanel(figure_drawing.name, title, figure_drawing.caption, _convert_svg_to_html(svg, figure_drawing))


def _convert_svg_to_html(svg_text: str, drawn_figure: CaptionedFigure) -> Markup:
    """Return an SVG image as an element of an HTML page.

    The element has no fixed size, unique ids, and the colours of the page.
    """
    body = svg_text[svg_text.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", body, count=1)
    body = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", body, count=1)
    body = re.sub(r'(id="|url\(#|href="#)', rf"\g<1>{drawn_figure.name}-", body)
    for colour, variable in PAGE_COLOURS.items():
        body = body.replace(colour, variable)
    return Markup(body.replace("<svg", '<svg role="img" aria-hidden="true"', 1))  # noqa: S704 -- our own drawing
