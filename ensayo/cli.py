"""The command line: one command per question, no logic of its own.

What a command needs is imported when it runs: `ensayo --help` must not wait for NumPy.
"""

# ruff: noqa: PLC0415 - see above

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from ensayo.exit_codes import exit_code
from services.schema.errors import EnsayoError, UserError

app = typer.Typer(
    help="Rehearse distributed deep-learning training on one machine.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Name = Annotated[str, typer.Argument(help="a shipped scenario's name, or the path of a file", metavar="SCENARIO")]
Engine = Annotated[str | None, typer.Option(help="docker, local or simulated; the best that this host has when absent")]
Sets = Annotated[
    list[str] | None, typer.Option("--set", help="another value for a key, as cluster.workers=4", metavar="KEY=VALUE")
]
Folder = Annotated[Path, typer.Argument(help="a run's folder", exists=True, file_okay=False)]


@app.command()
def run(
    scenario: Name,
    engine: Engine = None,
    runs: Annotated[Path, typer.Option(help="where run folders go")] = Path("runs"),
    sets: Sets = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="show nothing but the verdict")] = False,
) -> None:
    """Run every trial of a scenario and report on them."""
    from compose.scenario_files.load import find_scenario
    from ensayo.progress_display import display
    from ensayo.rehearsal import rehearse

    watch = display(quiet=quiet)
    try:
        done = rehearse(
            find_scenario(scenario), engine, runs, settings(sets), watch, shlex.join(["ensayo", *sys.argv[1:]])
        )
    finally:
        watch.finish()
    from analysis.checks.fidelity import collect_remedies  # only now: pandas takes a second, which the nodes could use
    from analysis.reading.run_folder import RunFolder

    _tell_damage(done.folder / "summary.json")
    for doubt in done.doubts:
        typer.echo(f"  {doubt}")
    for remedy in collect_remedies(RunFolder(done.folder)):
        typer.echo(remedy)
    typer.echo(f"{done.verdict}: {done.folder / 'report.html'}")
    raise typer.Exit(done.exit_code)


@app.command()
def plan(scenario: Name, engine: Engine = None, sets: Sets = None) -> None:
    """Show what would run, what each step should cost and how long it would take; starts nothing."""
    from compose.engines import choose_engine
    from compose.runs.run import decide_admission
    from compose.scenario_files.load import find_scenario, load_scenario
    from ensayo.tables import console, plan_table
    from ensayo.terminal_text import admission, choices
    from services.cluster.addresses import InProcessAddresses
    from services.plan import make_plan

    loaded = load_scenario(find_scenario(scenario), settings(sets), engine)
    chosen, _ = choose_engine(engine or loaded.engine)
    allowed = decide_admission(loaded, chosen)
    plans = [
        make_plan(trial, "plan", chosen.name, InProcessAddresses(), dilation=allowed.dilation, alpha_s=allowed.alpha_s)
        for trial in loaded.trials()
    ]
    console().print(plan_table(plans))
    for line in (*choices(plans), *admission(allowed, plans)):
        typer.echo(line)


@app.command()
def validate(
    scenarios: Annotated[
        list[str] | None, typer.Argument(metavar="[SCENARIO]...", help="all shipped ones when absent")
    ] = None,
) -> None:
    """Check scenarios and say everything that is wrong with any of them at once."""
    from compose.scenario_files.load import find_scenario, load_scenario, shipped_scenario_paths

    wrong = []
    for path in [find_scenario(name) for name in scenarios or ()] or shipped_scenario_paths():
        try:
            loaded = load_scenario(path)
        except UserError as error:
            wrong.append(str(error))
        else:
            typer.echo(f"{path.stem}: {sum(1 for _ in loaded.trial_choices())} trials")
    if wrong:
        raise UserError("\n".join(wrong))


@app.command("list")
def list_scenarios() -> None:
    """Show the shipped scenarios and the question that each of them answers."""
    from compose.scenario_files.load import shipped_scenario_paths
    from ensayo.tables import console, scenario_table

    console().print(scenario_table(shipped_scenario_paths()))


@app.command("search-switch")
def search_switch(
    scenario: Name,
    engine: Engine = None,
    runs: Annotated[Path, typer.Option(help="where run folders go")] = Path("runs"),
    sets: Sets = None,
    repeats: Annotated[int, typer.Option(min=1, help="runs of every fraction, each with a seed of its own")] = 5,
    beta: Annotated[float, typer.Option(min=0, help="by how much a quality may be worse than lockstep's")] = 0.01,
    tries: Annotated[int, typer.Option(min=1, help="how often the interval of fractions is halved")] = 4,
) -> None:
    """Find how early a strategy may stop working in lockstep without losing quality (Sync-Switch's timing policy)."""
    from compose.scenario_files.load import find_scenario, load_scenario
    from ensayo.fraction_search import Trying
    from ensayo.switch_search import answer, search, searched

    path = find_scenario(scenario)
    loaded = load_scenario(path, settings(sets), engine)
    label, key = searched(loaded)
    trying = Trying(path, engine, runs, settings(sets), loaded, label, key, repeats)
    found = []
    for each in search(trying.measure, beta, tries):
        found.append(each)
        typer.echo(f"{trying.shown(each)}  {trying.folders[-1]}")
    typer.echo(f"answer: {key} = {answer(found).fraction:g}")


@app.command()
def report(run: Folder) -> None:
    """Write the report of a run, finished or not, from its logs."""
    from analysis.reading.parallel import create_process_pool
    from analysis.reading.run_folder import RunFolder

    with create_process_pool(RunFolder(run).log_bytes) as team:
        team.preload("analysis.results.trial")  # that takes seconds, as does the next line
        from analysis.report.report import write_report

        page = write_report(run, team)
    _tell_damage(page.with_name("summary.json"))
    typer.echo(page)


@app.command()
def compare(
    runs: Annotated[list[Path], typer.Argument(help="folders of runs", exists=True, file_okay=False)],
    mlperf: Annotated[
        list[str] | None, typer.Option(help="lay a published series over them, as bert", metavar="BENCHMARK")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="where the page goes; `compare` in the last run's folder when absent")
    ] = None,
) -> None:
    """Lay runs over each other, and over public results: what changed, as a table and as a page."""
    from analysis.comparison.changes import format_changes
    from analysis.comparison.lines import find_published_series, read_runs
    from analysis.comparison.page import write_comparison

    series = find_published_series(mlperf or ())
    if len(runs) + len(series) == 1:
        raise UserError(f"{runs[0]}: compare it with another run, or with public results: --mlperf bert")
    compared = read_runs(runs)
    for later in compared[1:]:
        typer.echo(f"{format_changes(compared[0].summary, later.summary)}\n")
    for told in (f"{run.letter} {each}" for run in compared for each in run.summary.damage):
        typer.echo(told, err=True)
    typer.echo(write_comparison(compared, series, out or runs[-1] / "compare"))


@app.command()
def export(
    run: Folder,
    to: Annotated[str, typer.Option("--to", help="mlperf, perfetto, hta, chakra, tensorboard or csv")],
    out: Annotated[Path | None, typer.Option(help="a new folder; RUN/exports/<format> when absent")] = None,
) -> None:
    """Write a run for another tool: MLCommons' checkers, Perfetto, HTA, Chakra, TensorBoard, or as tables."""
    from analysis.exports.export import export_run

    done = export_run(run, to, out)
    for doubt in (*done.damage, *done.doubtful_trials, *done.omissions):
        typer.echo(f"  {doubt}", err=True)
    typer.echo(done.path)


@app.command()
def mlperf(
    data: Annotated[
        Path | None,
        typer.Option(help="a CSV, or a folder of published logs of any round; v4.1 when absent", exists=True),
    ] = None,
    out: Annotated[Path, typer.Option(help="where page, tables and figures go", file_okay=False)] = Path("runs/mlperf"),
) -> None:
    """Study public results of MLPerf Training: speedup, efficiency and clusters of systems; starts nothing."""
    from analysis.reading.parallel import ProcessPool

    with ProcessPool() as team:
        team.preload("analysis.report.report")  # it takes seconds, as does the next line
        from ensayo.study_tables import tell

        typer.echo(tell(data, out, team))


@app.command()
def doctor(
    json: Annotated[bool, typer.Option("--json", help="for programs: a list of objects")] = False,
) -> None:
    """Show what this host has for each engine, and what it lacks."""
    from compose.host.doctor import check_host, findings_as_json

    if json:
        typer.echo(findings_as_json())
        return
    for finding in check_host():
        typer.echo(finding)


@app.command()
def calibrate(engine: Engine = None) -> None:
    """Measure what messages cost on this host and which rates it carries; predictions and admission use it."""
    from compose.calibration.calibrate import calibrate_host as measure
    from compose.calibration.capacity import save_capacity
    from compose.engines import choose_engine
    from ensayo.progress_display import display
    from services.transport.planes import DATA_PLANES

    chosen, _ = choose_engine(engine)
    if chosen.name == "simulated":
        raise UserError("engine simulated needs no calibration: virtual time carries everything")
    watch = display(quiet=True)
    for transport in DATA_PLANES:
        typer.echo(f"transport    {transport}")
        kept = save_capacity(measure(chosen, transport, watch, typer.echo))
    typer.echo(f"{kept}: kept for engine {chosen.name}")


@app.command()
def schema() -> None:
    """Print the JSON Schema of scenario files, for editors."""
    import json

    from compose.scenario_files.json_schema import scenario_schema

    typer.echo(json.dumps(scenario_schema(), indent=2, ensure_ascii=False))


@app.command()
def clean() -> None:
    """Remove containers, networks and processes of all runs, those that still go on included; run folders stay."""
    from compose.runs.clean import remove_leftovers

    for removed in remove_leftovers():
        typer.echo(f"removed {removed}")


def _tell_damage(summary: Path) -> None:
    """What of a run's files could not be read, as file:line."""
    import json

    for told in json.loads(summary.read_text(encoding="utf-8"))["damage"]:
        typer.echo(told, err=True)


def settings(sets: list[str] | None) -> dict[str, str]:
    """`KEY=VALUE` arguments as a mapping."""
    pairs = [text.partition("=") for text in sets or ()]
    if wrong := [key for key, equals, _ in pairs if not (key and equals)]:
        raise UserError(f"--set {wrong[0]}: write KEY=VALUE, for example cluster.workers=4")
    return {key: value for key, _, value in pairs}


def main() -> None:
    """Run the command line; whatever we raise on purpose becomes a message and an exit code."""
    try:
        app()
    except EnsayoError as error:
        typer.echo(error, err=True)
        sys.exit(exit_code(error))
