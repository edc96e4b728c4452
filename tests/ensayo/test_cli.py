"""The command line: its output and its exit codes."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from analysis.mlperf.chapters import Chapter, ChapterTable, TableColumn
from compose.engines.containers.engine import DockerEngine
from compose.runs.interrupt import STOP_SIGNALS
from compose.scenario_files.json_schema import scenario_schema
from ensayo import cli
from ensayo.exit_codes import ExitCode, exit_code_of_error
from ensayo.terminal.mlperf_tables import render_terminal_chapter
from ensayo.terminal.tables import create_console
from services.schema.errors import DeadlineExceeded, EnsayoError, HostError, ProtocolError, UserError


def output_of(*arguments: str) -> str:
    """The output of a command that succeeds."""
    result = CliRunner().invoke(cli.app, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def exit_code_of(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    """The exit code of the whole program."""
    monkeypatch.setattr(sys, "argv", ["ensayo", *arguments])
    with pytest.raises(SystemExit) as exited:
        cli.main()
    return int(exited.value.code or 0)


def test_list_shows_every_scenario_with_its_question() -> None:
    """A new user chooses by question, not by name."""
    text = output_of("list")

    assert "quickstart" in text
    assert "Which strategy" in text


def test_list_names_the_folder_of_the_files() -> None:
    """Users start with a copy of a shipped file; after `pip install` they have no checkout."""
    label, _, folder = output_of("list").splitlines()[-1].partition(": ")

    assert label == "files"
    assert Path(folder, "quickstart.yaml").is_file()


def test_validate_counts_trials() -> None:
    """A mistake in a sweep shows first in the number of trials."""
    result = CliRunner().invoke(cli.app, ["validate", "quickstart", "smoke"])

    assert result.stdout.splitlines() == ["quickstart: 7 trials", "smoke: 3 trials"]


@pytest.mark.parametrize(("names", "is_stated"), [(["smoke"], True), (["thesis", "smoke"], True), (["thesis"], False)])
def test_validate_states_that_it_does_not_check_the_speed_of_this_host(names: list[str], *, is_stated: bool) -> None:
    """A valid scenario may still be rejected by `ensayo run`, unless it computes all times."""
    note = "not checked: whether this host is fast enough; ensayo plan and ensayo run check it"

    result = CliRunner().invoke(cli.app, ["validate", *names])

    assert (note in result.stderr.splitlines()) is is_stated


def test_schema_is_json() -> None:
    """Editors read the schema from a pipe."""
    assert json.loads(output_of("schema")) == scenario_schema()


def test_a_broken_scenario_ends_with_2_and_all_its_problems(
    pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing was started, and all problems are listed at once."""
    monkeypatch.chdir(pytestconfig.rootpath)
    broken = Path("tests/broken/many_at_once.yaml")

    code = exit_code_of(["validate", str(broken)], monkeypatch)

    assert (code, capsys.readouterr().err) == (ExitCode.NOT_STARTED, broken.with_suffix(".txt").read_text())


def test_every_broken_scenario_is_reported_and_valid_ones_are_counted(
    pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A user who checks a folder of files can fix all of them at once."""
    monkeypatch.chdir(pytestconfig.rootpath)
    broken = [Path("tests/broken") / name for name in ("many_at_once.yaml", "yaml_syntax.yaml", "zero_rate.yaml")]

    code = exit_code_of(["validate", str(broken[0]), "smoke", *map(str, broken[1:])], monkeypatch)

    printed = capsys.readouterr()
    assert code == ExitCode.NOT_STARTED
    assert printed.out == "smoke: 3 trials\n"
    assert printed.err == "".join(path.with_suffix(".txt").read_text() for path in broken)


def test_plan_states_why_no_closed_form_describes_a_trial() -> None:
    """Lost packets are sent again, which no closed form contains."""
    exact = output_of("plan", "smoke", "--engine", "simulated")
    lossy = output_of(
        "plan", "smoke", "--engine", "simulated", "--set", "cluster.worker.loss={kind: independent, share: 0.01}"
    )

    mark = "no closed form for 000, 001, 002: packets are lost or have jitter; their times are estimates"
    assert "packets are lost" not in exact
    assert mark in lossy.splitlines()


def test_plan_and_run_warn_of_corrupted_messages_that_are_not_detected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The result of such a training has errors that no node knows of."""
    monkeypatch.chdir(tmp_path)
    arguments = ("smoke", "--engine", "simulated", "--set", "events=[{kind: corrupt, of: [worker-1], at: {step: 3}}]")
    warning = "ring, ps_bsp, ps_asp: messages that the event corrupt changes are used as they are; write security: "

    planned = output_of("plan", *arguments)
    assert warning in planned
    assert "events change links or devices" not in planned, "flipped bits change no time"
    assert warning in CliRunner().invoke(cli.app, ["run", *arguments]).output
    assert "messages are signed (security.data): " in planned
    authenticated = output_of("plan", *arguments, "--set", "security.data=authenticated")
    assert warning not in authenticated
    assert "messages are authenticated (security.data): " in authenticated


def test_plan_states_from_which_keys_compute_speeds_follow() -> None:
    """A speed may follow from a throughput or from a utilisation; a wrong source would change every time."""
    by_throughput = output_of("plan", "smoke", "--engine", "simulated")
    by_utilisation = output_of(
        *("plan", "smoke", "--engine", "simulated", "--set", "workload.payload=resnet-50"),
        *("--set", "cluster.worker={profile: h100, utilisation: 0.1, uplink: 1gbit, downlink: 1gbit}"),
    )

    assert "worker-0, worker-1: 2,000 samples/s = throughput 2000/s" in by_throughput.splitlines()
    assert (
        "worker-0, worker-1: 4,030.96 samples/s = utilisation 0.1 x 989 TFLOP/s (h100) / 24.5 GFLOP per sample "
        "(published for resnet-50)"
    ) in by_utilisation.splitlines()
    assert "throughput" not in by_utilisation


def test_plan_states_the_declared_and_the_trained_model() -> None:
    """The times of the table are those of messages that the trained model does not have."""
    mark = "messages as large as those of "
    declared = output_of("plan", "smoke", "--engine", "simulated", "--set", "workload.payload=resnet-50")

    lines = [line for line in declared.splitlines() if mark in line]
    assert lines == [
        f"{mark}resnet-50 (25,557,032 parameters in fp32, 102 MB); the trained model has 2,410 parameters (9.64 kB)"
    ]
    assert mark not in output_of("plan", "smoke", "--engine", "simulated")


@pytest.mark.parametrize("command", ["plan", "run"])
def test_virtual_time_needs_workers_that_are_paced(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Workers that take no time train infinitely fast; such a run was once reported as valid."""
    monkeypatch.chdir(tmp_path)
    arguments = [command, "smoke", "--engine", "simulated", "--set", "cluster.worker={uplink: 1gbit}"]

    code = exit_code_of(arguments, monkeypatch)

    assert code == ExitCode.NOT_STARTED
    assert "cluster.worker.throughput: engine simulated needs a throughput" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_folder_with_the_name_of_a_package_does_not_disturb_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nodes imported `services` from the folder in which a user started the run."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "services").mkdir()
    (tmp_path / "services" / "__init__.py").write_text("raise ImportError('not the package of Ensayo')")

    output_of("run", "smoke", "--engine", "simulated", "--quiet", "--set", "workload.epochs=1")


@pytest.mark.docker
def test_images_prints_the_tag_of_the_image_that_runs_use(docker_engine: DockerEngine) -> None:
    """Users build the image before their first run, which otherwise waits for it."""
    assert output_of("images").splitlines() == [docker_engine.images["cpu"]]


def test_images_names_what_this_host_lacks(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Without this check, the message would be that of a failed build."""
    monkeypatch.setattr(DockerEngine, "missing_software", lambda _: "the Docker daemon does not answer")

    assert exit_code_of(["images"], monkeypatch) == ExitCode.NOT_STARTED
    assert "can't be built: the Docker daemon does not answer; `ensayo doctor`" in capsys.readouterr().err


def test_a_file_as_folder_of_runs_ends_with_2_and_a_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The run ended with a traceback, after the engine was prepared."""
    runs = tmp_path / "runs"
    runs.write_text("")

    code = exit_code_of(["run", "smoke", "--engine", "simulated", "--quiet", "--runs", str(runs)], monkeypatch)

    assert code == ExitCode.NOT_STARTED
    message = capsys.readouterr().err
    assert message.startswith(f"--runs {runs}: the run folder can't be created: File exists; choose a writable folder")


def test_a_file_as_folder_of_a_comparison_is_rejected_before_it_is_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The comparison was computed, and then ended with a traceback."""
    page_folder = tmp_path / "page"
    page_folder.write_text("")
    monkeypatch.setenv("COLUMNS", "1000")  # so that the message is not wrapped

    assert exit_code_of(["compare", str(tmp_path), "--out", str(page_folder)], monkeypatch) == ExitCode.NOT_STARTED
    assert "is a file" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["validate", "no-such"],
        ["run", "smoke", "--set", "epochs"],
        ["run"],
        ["compare", "nowhere", "neither"],
        ["dance"],
    ],
)
def test_invalid_arguments_end_with_2(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The code is the same for errors found by click and by Ensayo."""
    assert exit_code_of(arguments, monkeypatch) == ExitCode.NOT_STARTED


def test_clean_of_a_folder_that_is_no_run_ends_with_2_and_removes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A mistyped folder must not clean all runs."""
    monkeypatch.setattr("compose.runs.clean.remove_leftovers", lambda _: pytest.fail("something was removed"))

    assert exit_code_of(["clean", str(tmp_path)], monkeypatch) == ExitCode.NOT_STARTED
    assert f"{tmp_path}: no run folder with a readable manifest.json" in capsys.readouterr().err


@pytest.mark.parametrize("stop_signal", STOP_SIGNALS)
def test_every_command_can_clean_up_after_a_stop_signal(
    monkeypatch: pytest.MonkeyPatch, stop_signal: signal.Signals
) -> None:
    """SIGTERM ended commands at once, so that temporary folders remained; scripts start programs without SIGINT.

    All signals raise KeyboardInterrupt, and the exit code is that of Ctrl-C.
    """
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    monkeypatch.setattr(cli, "app", lambda: signal.raise_signal(stop_signal))
    try:
        assert exit_code_of(["list"], monkeypatch) == ExitCode.INTERRUPTED
    finally:
        signal.signal(signal.SIGINT, before)


def define_class_with_interrupted_attribute() -> None:
    """Interrupt Python in `__set_name__`; Python 3.11 then raises a RuntimeError from the KeyboardInterrupt."""

    class Attribute:
        def __set_name__(self, *_: object) -> None:
            signal.raise_signal(signal.SIGINT)

    class _Owner:
        attribute = Attribute()


def import_interrupted_cpp_module() -> None:
    """Raise what pybind11 raises when a module is interrupted while it is imported."""
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt as error:
        raise ImportError("initialization failed") from error


@pytest.mark.parametrize("command", [define_class_with_interrupted_attribute, import_interrupted_cpp_module])
def test_an_interrupt_that_an_import_turns_into_another_exception_is_an_interrupt(
    monkeypatch: pytest.MonkeyPatch, command: Callable[[], None]
) -> None:
    """One start of 200 ended with exit code 1 and a traceback, because Ctrl-C came while Matplotlib was imported."""
    monkeypatch.setattr(cli, "app", command)

    assert exit_code_of(["report"], monkeypatch) == ExitCode.INTERRUPTED


def test_an_error_in_the_clean_up_after_an_interrupt_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    """A defect of the clean-up leaves something behind; its traceback must be seen."""

    def fail_to_clean_up() -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        finally:
            raise AttributeError("defect of the clean-up")

    monkeypatch.setattr(cli, "app", fail_to_clean_up)
    with pytest.raises(AttributeError, match="defect of the clean-up"):
        cli.main()


INTERRUPTED_IMPORT = """
import signal, sys

class Interrupter:
    has_interrupted = False

    def find_spec(self, name, *_):
        if name == "analysis.reading.run_table" and not self.has_interrupted:
            self.has_interrupted = True
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Interrupter())
from ensayo.cli import main
main()
"""


def test_an_interrupt_while_the_analysis_is_imported_loses_no_report(tmp_path: Path) -> None:
    """Python removes an interrupted package from `sys.modules`, but not its submodules, and a second import fails.

    The runner imports the analysis when the first trial has ended. Of 40 interrupted runs, 3 had no report.
    """
    arguments = ["run", "smoke", "--engine", "simulated", "--runs", str(tmp_path)]
    finished = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_IMPORT, *arguments], capture_output=True, text=True, check=False
    )

    assert finished.returncode == ExitCode.INTERRUPTED, finished.stderr
    (report,) = tmp_path.glob("smoke/2*/report.html")
    assert "2 of 3 trials have not run" in report.read_text()


DIVERGING_SCENARIO = """\
name: diverging
workload:
  dataset: {kind: synthetic_regression, samples: 100, features: 4, outputs: 2, hidden: 8}
  model: {kind: linear}
  optimiser: {kind: sgd, rate: 1e30}
  batch: 20
  epochs: 2
cluster:
  workers: 2
  worker: {throughput: 1000/s}
strategies:
  ring: {kind: all_reduce}
baseline: false
"""


def test_a_run_with_a_diverged_trial_ends_with_4_and_states_the_divergence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Such a run once ended as a success with exit code 3 and with warnings of NumPy."""
    scenario = tmp_path / "diverging.yaml"
    scenario.write_text(DIVERGING_SCENARIO)

    code = exit_code_of(["run", str(scenario), "--engine", "simulated", "--runs", str(tmp_path)], monkeypatch)

    printed = capfd.readouterr()
    (summary_path,) = tmp_path.glob("diverging/*/summary.json")
    (trial,) = json.loads(summary_path.read_text())["trials"]
    assert code == ExitCode.FAILED
    assert (trial["status"], trial["diverged"]) == ("failed", True)
    assert "  ring, 2 workers: diverged, " in printed.out
    assert ": training diverged" in printed.out
    assert "Warning" not in printed.err


def test_a_setting_is_a_key_and_a_value() -> None:
    """Values may contain equals signs; the key is required."""
    assert cli.parse_key_value_settings(["cluster.workers=4", "a=b=c"]) == {"cluster.workers": "4", "a": "b=c"}
    with pytest.raises(UserError, match="write KEY=VALUE"):
        cli.parse_key_value_settings(["epochs"])


@pytest.mark.parametrize(
    ("error", "code"), [(UserError, 2), (HostError, 2), (DeadlineExceeded, 4), (ProtocolError, 4), (EnsayoError, 4)]
)
def test_every_error_class_has_its_exit_code(error: type[EnsayoError], code: int) -> None:
    """Scripts decide by the code whether the user has to act."""
    assert exit_code_of_error(error("x")) == code


def test_a_piped_table_does_not_wrap_rows(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Piped output is processed with cut and grep."""
    monkeypatch.delenv("COLUMNS", raising=False)
    data = pd.DataFrame({f"c{index}": ["+222.8% of the speedup"] for index in range(12)})
    numbers = ChapterTable("t", "t", tuple(TableColumn(name, name) for name in data.columns), data)

    create_console().print(*render_terminal_chapter(Chapter("c", "f", tables=(numbers,))), sep="\n")

    assert any(line.count("+222.8% of the speedup") == 12 for line in capsys.readouterr().out.splitlines())


def test_help_needs_neither_numpy_nor_pydantic(pytestconfig: pytest.Config) -> None:
    """Help must appear without delay, and these imports are slow."""
    code = (
        "import sys, ensayo.cli; sys.exit(any(name in sys.modules for name in ('numpy', 'pydantic', 'grpc', 'yaml')))"
    )

    assert subprocess.run([sys.executable, "-c", code], cwd=pytestconfig.rootpath, check=False).returncode == 0
