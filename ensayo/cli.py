"""Command line of Ensayo. Every command parses its arguments, calls other packages and prints the result.

Commands import what they need when they run, so that `ensayo --help` does not wait for NumPy.
"""

# ruff: noqa: PLC0415 - see above

import shlex
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from compose.runs.interrupt import raise_on_first_stop_signal
from ensayo.exit_codes import ExitCode, exit_code_of_error
from services.schema.errors import EnsayoError, HostError, UserError
from services.schema.limits import MAX_ATTEMPTS

if TYPE_CHECKING:
    from ensayo.rehearsal import FinishedRunResult

app = typer.Typer(
    help="Rehearse distributed deep-learning training on one machine.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

ScenarioArgument = Annotated[
    str, typer.Argument(help="name of a shipped scenario, or path of a scenario file", metavar="SCENARIO")
]
EngineOption = Annotated[
    str | None, typer.Option("--engine", help="docker, local or simulated; default: the best that this host supports")
]
SettingsOption = Annotated[
    list[str] | None,
    typer.Option("--set", help="replace the value of a key, for example cluster.workers=4", metavar="KEY=VALUE"),
]
RunFolderArgument = Annotated[Path, typer.Argument(help="folder of a run", exists=True, file_okay=False, metavar="RUN")]
RunsFolderOption = Annotated[Path, typer.Option("--runs", help="folder in which run folders are created")]


@app.command("run")
def run_trials(
    scenario: Annotated[
        str | None,
        typer.Argument(help="name of a shipped scenario, or path of a scenario file", metavar="SCENARIO"),
    ] = None,
    engine: EngineOption = None,
    runs_folder: Annotated[
        Path | None, typer.Option("--runs", help="folder in which run folders are created; default: runs")
    ] = None,
    settings: SettingsOption = None,
    attempts: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MAX_ATTEMPTS,
            help="attempts at a trial that this host disturbs; default: that of the scenario",
        ),
    ] = None,
    resumed_run: Annotated[
        Path | None,
        typer.Option(
            "--resume",
            help="folder of an interrupted run to continue, with its scenario, settings and engine",
            exists=True,
            file_okay=False,
            metavar="RUN",
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="print only the verdict")] = False,
) -> None:
    """Run all trials of a scenario and write the report, or continue an interrupted run."""
    from compose.scenario_files.load import find_scenario
    from ensayo.rehearsal import rehearse, resume
    from ensayo.terminal.progress_display import create_run_display

    display = create_run_display(quiet=quiet)
    command = shlex.join(["ensayo", *sys.argv[1:]])
    try:
        if resumed_run is None:
            given = parse_key_value_settings(settings) | ({} if attempts is None else {"attempts": str(attempts)})
            path = find_scenario(_require_scenario(scenario))
            rehearsal = rehearse(path, engine, runs_folder or Path("runs"), given, display, command)
        else:
            options = {"--engine": engine, "--runs": runs_folder, "--set": settings, "--attempts": attempts}
            _reject_with_resume({"SCENARIO": scenario, **options})
            rehearsal = resume(resumed_run, display, command)
    finally:
        display.close()
    _print_result_of_run(rehearsal)
    raise typer.Exit(rehearsal.exit_code)


def _require_scenario(scenario: str | None) -> str:
    if scenario is None:
        raise UserError("name a scenario: ensayo run SCENARIO; `ensayo list` shows the shipped ones")
    return scenario


def _reject_with_resume(argument_values: Mapping[str, object]) -> None:
    """Raise UserError if an argument was given that a resumed run can't change."""
    if given := [name for name, value in argument_values.items() if value]:
        raise UserError(f"{given[0]}: remove it; a resumed run keeps its scenario, settings, engine and folder")


def _print_result_of_run(rehearsal: "FinishedRunResult") -> None:
    """Print how a run has ended: damage, repeated trials, reasons, remedies, verdict and the path of the report."""
    # Imported only now: pandas takes a second to import, which the nodes can use.
    from analysis.checks.fidelity import read_failed_check_remedies
    from analysis.reading.run_folder import RunFolder

    _print_unreadable_files(rehearsal.folder / "summary.json")
    for line in (*rehearsal.repeated_trials, *rehearsal.continued_trials, *rehearsal.reasons):
        typer.echo(f"  {line}")
    for remedy in read_failed_check_remedies(RunFolder(rehearsal.folder)):
        typer.echo(remedy)
    if rehearsal.exit_code == ExitCode.INTERRUPTED:
        typer.echo(f"interrupted; continue with: ensayo run --resume {shlex.quote(str(rehearsal.folder))}")
    typer.echo(f"{rehearsal.verdict}: {rehearsal.folder / 'report.html'}")


@app.command("plan")
def show_plan(scenario: ScenarioArgument, engine_name: EngineOption = None, assignments: SettingsOption = None) -> None:
    """Show the trials of a scenario with their predicted step times and durations.

    Starts nothing.
    """
    from compose.scenario_files.load import find_scenario
    from ensayo.planning import plan_trials
    from ensayo.terminal.strategy_choice_lines import strategy_choice_lines
    from ensayo.terminal.tables import (
        balance_lines,
        break_even_density_lines,
        compressed_traffic_lines,
        compute_speed_lines,
        create_console,
        inapplicable_form_lines,
        payload_lines,
        plan_table,
    )
    from ensayo.terminal.terminal_text import (
        chosen_collective_lines,
        data_protection_lines,
        host_capacity_lines,
        undeclared_rate_lines,
        undetected_corruption_lines,
    )
    from ensayo.unknown_predictions import repeat_lines, unknown_prediction_lines

    planned = plan_trials(find_scenario(scenario), engine_name, parse_key_value_settings(assignments))
    create_console().print(plan_table(planned.plans))
    for line in (
        *compute_speed_lines(planned.plans),
        *undeclared_rate_lines(planned.plans),
        *payload_lines(planned.plans),
        *compressed_traffic_lines(planned.plans),
        *break_even_density_lines(planned.plans),
        *unknown_prediction_lines(planned.plans),
        *repeat_lines(planned.plans),
        *data_protection_lines(planned.plans),
        *undetected_corruption_lines(planned.plans),
        *inapplicable_form_lines(planned.plans),
        *chosen_collective_lines(planned.plans),
        *strategy_choice_lines(planned.plans),
        *balance_lines(planned.plans),
        *host_capacity_lines(planned.capacity_check, planned.plans),
    ):
        typer.echo(line)


@app.command("validate")
def validate_scenarios(
    scenario_names: Annotated[
        list[str] | None, typer.Argument(metavar="[SCENARIO]...", help="default: all shipped scenarios")
    ] = None,
) -> None:
    """Check scenario files, and show the errors of all of them together.

    The speed of this host is not checked.
    """
    from compose.scenario_files.load import find_scenario, load_scenario, shipped_scenario_paths
    from compose.scenario_files.problems import SkippedScenarioError

    errors, runs_on_host = [], False
    for path in [find_scenario(name) for name in scenario_names or ()] or shipped_scenario_paths():
        try:
            scenario = load_scenario(path)
        except SkippedScenarioError as error:
            typer.echo(str(error))
        except UserError as error:
            errors.append(str(error))
        else:
            typer.echo(f"{path.stem}: {sum(1 for _ in scenario.all_trial_identities())} trials")
            runs_on_host = runs_on_host or scenario.engine != "simulated"
    if errors:
        raise UserError("\n".join(errors))
    if runs_on_host:
        typer.echo("not checked: whether this host is fast enough; ensayo plan and ensayo run check it", err=True)


@app.command("list")
def list_scenarios() -> None:
    """Show the shipped scenarios, each with the question that it answers."""
    from compose.scenario_files.load import SHIPPED_FOLDER, shipped_scenario_paths
    from ensayo.terminal.tables import create_console, scenario_table

    create_console().print(scenario_table(shipped_scenario_paths()))
    typer.echo(f"files: {SHIPPED_FOLDER}")


@app.command("search-switch")
def search_switch_fraction(
    scenario: ScenarioArgument,
    engine_name: EngineOption = None,
    runs_folder: RunsFolderOption = Path("runs"),
    assignments: SettingsOption = None,
    repeats: Annotated[int, typer.Option(min=1, help="trials per fraction, each with its own seed")] = 5,
    beta: Annotated[
        float, typer.Option(min=0, help="how much worse than with synchronous training the quality may be")
    ] = 0.01,
    halvings: Annotated[int, typer.Option("--tries", min=1, help="how often the interval of fractions is halved")] = 4,
) -> None:
    """Find the earliest switch to asynchronous training that loses no quality (Sync-Switch)."""
    from compose.scenario_files.load import find_scenario, load_scenario
    from ensayo.fraction_search import SwitchFractionRunner
    from ensayo.strategy_switch_search import (
        bisect_switch_fraction,
        find_earliest_good_switch,
        find_only_strategy_switch,
    )

    path, settings = find_scenario(scenario), parse_key_value_settings(assignments)
    loaded = load_scenario(path, settings, engine_name)
    strategy_label, fraction_key = find_only_strategy_switch(loaded)
    search = SwitchFractionRunner(
        path, engine_name, runs_folder, settings, loaded, strategy_label, fraction_key, repeats
    )
    results = []
    for result in bisect_switch_fraction(search.measure_quality_and_time, beta, halvings):
        results.append(result)
        typer.echo(f"{search.format_switch_result(result)}  {search.run_folders[-1]}")
    typer.echo(f"answer: {fraction_key} = {find_earliest_good_switch(results).fraction:g}")


@app.command("search-faults")
def search_fault_schedules(
    scenario: Annotated[
        str | None,
        typer.Argument(
            help="scenario whose strategies are disturbed; default: a table of strategies of all kinds",
            metavar="[SCENARIO]",
        ),
    ] = None,
    seed_text: Annotated[str, typer.Option("--seeds", help="seed, or range of seeds, such as 0-999")] = "0-999",
    strategy_label: Annotated[
        str | None, typer.Option("--strategy", help="label of the only strategy to disturb", metavar="LABEL")
    ] = None,
    replay_path: Annotated[
        Path | None,
        typer.Option("--replay", help="YAML file of one fault schedule to simulate instead", metavar="FILE"),
    ] = None,
) -> None:
    """Search for faults that violate an invariant of training, by simulation in virtual time.

    Each seed determines a strategy, a small cluster, and events and delays of messages and calls that disturb its
    training.
    """
    from ensayo.fault_search.invariants import find_violation
    from ensayo.fault_search.search import (
        choose_strategies,
        describe_failures,
        parse_seeds,
        read_schedule,
        search_seeds,
    )

    if replay_path is not None:
        violation = find_violation(read_schedule(replay_path))
        typer.echo(f"violates {violation.invariant}: {violation.explanation}" if violation else "all invariants hold")
        raise typer.Exit(ExitCode.FAILED if violation else ExitCode.OK)
    strategies = choose_strategies(scenario, strategy_label)
    result = search_seeds(parse_seeds(seed_text), strategies)
    for text in describe_failures(result, strategies, scenario, strategy_label):
        typer.echo(text)
    typer.echo(result.summary)
    raise typer.Exit(ExitCode.FAILED if result.failures else ExitCode.OK)


@app.command("report")
def report_run(run_folder: RunFolderArgument) -> None:
    """Write the report of a run from its logs. The run need not be finished."""
    from analysis.reading.parallel import create_process_pool
    from analysis.reading.run_folder import RunFolder

    with create_process_pool(RunFolder(run_folder).total_log_bytes) as process_pool:
        # Started before the import below, because both take seconds.
        process_pool.preload_module("analysis.results.analyse_trial")
        from analysis.report.report import write_report

        page = write_report(run_folder, process_pool)
    _print_unreadable_files(page.with_name("summary.json"))
    typer.echo(page)


@app.command("compare")
def compare_runs(
    run_folders: Annotated[
        list[Path], typer.Argument(help="folders of runs", exists=True, file_okay=False, metavar="RUNS...")
    ],
    benchmark_names: Annotated[
        list[str] | None,
        typer.Option(
            "--mlperf", help="add a published series of MLPerf to the comparison, for example bert", metavar="BENCHMARK"
        ),
    ] = None,
    output_folder: Annotated[
        Path | None,
        typer.Option(
            "--out", help="folder of the page; default: `compare` in the folder of the last run", file_okay=False
        ),
    ] = None,
) -> None:
    """Compare runs with each other and with published MLPerf results.

    The comparison is shown as a table and written as a page.
    """
    from analysis.comparison.curves import mlperf_scaling_series, read_runs
    from analysis.comparison.page import write_comparison_page
    from analysis.comparison.run_changes import format_run_changes

    series = mlperf_scaling_series(benchmark_names or ())
    if len(run_folders) + len(series) == 1:
        raise UserError(
            f"{run_folders[0]}: one run cannot be compared; add another run, or published results: --mlperf bert"
        )
    compared_runs = read_runs(run_folders)
    for later_run in compared_runs[1:]:
        typer.echo(f"{format_run_changes(compared_runs[0].summary, later_run.summary)}\n")
    for run in compared_runs:
        for damage in run.summary.damage:
            typer.echo(f"{run.letter} {damage}", err=True)
    typer.echo(write_comparison_page(compared_runs, series, output_folder or run_folders[-1] / "compare"))


@app.command("export")
def export_run_folder(
    run_folder: RunFolderArgument,
    format_name: Annotated[str, typer.Option("--to", help="mlperf, perfetto, hta, chakra, tensorboard or csv")],
    output_folder: Annotated[
        Path | None, typer.Option("--out", help="new folder for the files; default: RUN/exports/<format>")
    ] = None,
) -> None:
    """Export a run as CSV tables or in the file format of another tool.

    The tools are MLCommons' checkers, Perfetto, HTA, Chakra and TensorBoard.
    """
    from analysis.exports.export import export_run

    exported = export_run(run_folder, format_name, output_folder)
    for remark in (*exported.damage, *exported.invalid_or_degraded_trials, *exported.omissions):
        typer.echo(f"  {remark}", err=True)
    typer.echo(exported.path)


@app.command("mlperf")
def study_mlperf_results(
    data_paths: Annotated[
        list[Path] | None,
        typer.Option(
            "--data",
            help="a CSV file, or a folder of published logs of any round; repeat it to compare rounds; default: v4.1",
            exists=True,
        ),
    ] = None,
    output_folder: Annotated[
        Path, typer.Option("--out", help="folder of the page, the tables and the figures", file_okay=False)
    ] = Path("runs/mlperf"),
    round_text: Annotated[
        str | None,
        typer.Option("--rules", help="round whose rules check the logs; default: detected", metavar="ROUND"),
    ] = None,
    trusts_published: Annotated[
        bool, typer.Option("--trust-published", help="accept results as published, without a check of their logs")
    ] = False,
    prices_path: Annotated[
        Path | None,
        typer.Option(
            "--prices",
            help="YAML file: accelerator -> {price: 2.5 USD/h, watts: 700W}, for cost and energy",
            exists=True,
            dir_okay=False,
            metavar="FILE",
        ),
    ] = None,
) -> None:
    """Analyse published MLPerf Training results: speedup, efficiency and groups of similar systems.

    Starts nothing.
    """
    from analysis.reading.parallel import ProcessPool

    with ProcessPool() as process_pool:
        # Started before the import below, because both take seconds.
        process_pool.preload_module("analysis.report.report")
        from analysis.mlperf.rule_sets.rounds import choose_rule_set
        from ensayo.terminal.mlperf_tables import write_and_print_mlperf_study

        rule_set = choose_rule_set(round_text, trusts_published=trusts_published)
        typer.echo(write_and_print_mlperf_study(data_paths or [], output_folder, process_pool, rule_set, prices_path))


@app.command("doctor")
def diagnose_host(
    json_output: Annotated[bool, typer.Option("--json", help="print a JSON list of objects, for programs")] = False,
) -> None:
    """Show which requirements of each engine this host meets, and which requirements are not met."""
    from compose.host.doctor import check_host, host_checks_as_json

    if json_output:
        typer.echo(host_checks_as_json())
        return
    for finding in check_host():
        typer.echo(finding)


@app.command("calibrate")
def measure_host_capacity(engine_name: EngineOption = None) -> None:
    """Measure the cost of a message and the highest link rates on this host.

    Runs and predictions use both.
    """
    from compose.calibration.calibrate import measure_capacity as measure
    from compose.calibration.capacity import save_capacity
    from compose.engines import choose_engine
    from ensayo.terminal.progress_display import create_run_display
    from services.transport.data_planes import DATA_PLANES

    engine, _ = choose_engine(engine_name)
    if engine.name == "simulated":
        raise UserError("engine simulated needs no calibration: in virtual time every link rate is possible")
    display = create_run_display(quiet=True)
    for transport in DATA_PLANES:
        typer.echo(f"transport    {transport}")
        capacity_path = save_capacity(measure(engine, transport, display, typer.echo))
    typer.echo(f"{capacity_path}: saved for engine {engine.name}")


@app.command("images")
def build_images(
    cuda: Annotated[bool, typer.Option("--cuda", help="build the image for nodes with an NVIDIA GPU")] = False,
    sbom: Annotated[
        Path | None, typer.Option("--sbom", help="write the packages in the image to this file, as SPDX 2.3 in JSON")
    ] = None,
) -> None:
    """Build the container image of the nodes, unless it exists.

    Runs in containers build it when they need it.
    """
    from compose.engines.containers.engine import DockerEngine
    from compose.engines.containers.node_image.build import build_node_image
    from compose.engines.containers.node_image.contents import write_bill_of_materials

    if missing := DockerEngine().missing_software():
        raise HostError(f"the node image can't be built: {missing}; `ensayo doctor` checks Docker")
    tag = build_node_image("cuda" if cuda else "cpu", partial(typer.echo, err=True))
    if sbom is not None:
        sbom.write_text(write_bill_of_materials(tag), encoding="utf-8")
    typer.echo(tag)


@app.command("schema")
def print_scenario_schema() -> None:
    """Print the JSON Schema of scenario files, for editors."""
    import json

    from compose.scenario_files.json_schema import scenario_schema

    typer.echo(json.dumps(scenario_schema(), indent=2, ensure_ascii=False))


@app.command("clean")
def remove_leftovers_of_runs(
    run_folder: Annotated[
        Path | None,
        typer.Argument(help="folder of a run; default: all runs", exists=True, file_okay=False, metavar="RUN"),
    ] = None,
) -> None:
    """Remove the containers, networks, processes and keys of one run or of all runs, including runs in progress.

    Run folders are kept. A run that ends by itself or by Ctrl-C leaves nothing; a killed run leaves stopped containers,
    networks and keys.
    """
    from compose.runs.clean import remove_leftovers
    from compose.runs.run_folder import read_run_name

    for leftover in remove_leftovers(read_run_name(run_folder) if run_folder else None):
        typer.echo(f"removed {leftover}")


def _print_unreadable_files(summary_path: Path) -> None:
    """Print each problem in the files of a run to stderr, with file and line number."""
    import json

    for damage in json.loads(summary_path.read_text(encoding="utf-8"))["damage"]:
        typer.echo(damage, err=True)


def parse_key_value_settings(assignments: list[str] | None) -> dict[str, str]:
    """Return command line arguments of the form `KEY=VALUE` as a mapping from key to value.

    Raises:
        UserError: an argument has no `=`, or nothing before it.
    """
    pairs = [assignment.partition("=") for assignment in assignments or ()]
    if invalid_keys := [key for key, equals, _ in pairs if not (key and equals)]:
        raise UserError(f"--set {invalid_keys[0]}: write KEY=VALUE, for example cluster.workers=4")
    return {key: value for key, _, value in pairs}


def main() -> None:
    """Run the command line.

    An `EnsayoError` is printed as a message, and the process exits with the exit code of the error. Ctrl-C, SIGTERM and
    SIGHUP end every command in order.
    """
    try:
        with raise_on_first_stop_signal():
            app()
    except EnsayoError as error:
        typer.echo(error, err=True)
        sys.exit(exit_code_of_error(error))
    except KeyboardInterrupt:  # before the command has begun or after it has ended
        sys.exit(ExitCode.INTERRUPTED)
