"""`ensayo export`: its output, and whether MLCommons' checker accepts the logs of every engine."""

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from analysis.exports import EXPORTERS
from compose.engines import EngineChoice, create_engine
from compose.runs.run import run_scenario
from compose.runs.run_folder import ScenarioFile
from compose.scenario_files.load import load_scenario, read_first_comment
from ensayo import cli
from ensayo.exit_codes import ExitCode
from ensayo.terminal.progress_display import SilentDisplay

SHORT = {"sweep.workers": "[2]", "workload.epochs": "1", "baseline": "false"}


def run_quickstart(root: Path, engine: str, runs: Path, settings: Mapping[str, str]) -> Path:
    """The folder of a real run of the quickstart."""
    path = root / "scenarios" / "quickstart.yaml"
    source = ScenarioFile(load_scenario(path, settings, engine), path.read_text(), read_first_comment(path), "")
    chosen = create_engine(engine)
    return run_scenario(source, EngineChoice(chosen, "asked for"), runs, SilentDisplay(Console())).folder


@pytest.fixture(scope="module")
def short_run(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_quickstart(pytestconfig.rootpath, "simulated", tmp_path_factory.mktemp("runs"), SHORT)


def test_the_command_prints_the_output_folder(short_run: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(cli.app, ["export", str(short_run), "--to", "csv", "--out", str(tmp_path / "out")])

    assert (done.exit_code, done.stdout) == (ExitCode.OK, f"{tmp_path / 'out'}\n")


def test_omissions_are_printed_to_standard_error(short_run: Path, tmp_path: Path) -> None:
    """A script reads the path; a person reads the omissions."""
    done = CliRunner().invoke(cli.app, ["export", str(short_run), "--to", "hta", "--out", str(tmp_path / "out")])

    assert done.stdout == f"{tmp_path / 'out'}\n"
    assert "servers are left out: HTA supports only ranks that compute" in done.stderr


def test_an_export_is_written_into_the_run_folder_by_default(short_run: Path) -> None:
    done = CliRunner().invoke(cli.app, ["export", str(short_run), "--to", "chakra"])

    assert done.stdout == f"{short_run / 'exports' / 'chakra'}\n"


def test_the_help_names_every_format() -> None:
    """A format that is missing from the help is never found."""
    help_text = CliRunner().invoke(cli.app, ["export", "--help"], env={"COLUMNS": "200"}).output

    assert all(kind in help_text for kind in EXPORTERS)


@pytest.mark.parametrize("name", ["perfetto", "tensorboard", "chakra"])
def test_a_missing_library_is_named_with_the_command_that_installs_it(
    name: str, short_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """These formats need libraries that no other part needs."""
    for module in [module for module in sys.modules if module.partition(".")[0] == name]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr(sys, "argv", ["ensayo", "export", str(short_run), "--to", name, "--out", str(tmp_path / "out")])

    with pytest.raises(SystemExit) as exited:
        cli.main()

    assert exited.value.code == ExitCode.NOT_STARTED
    assert f"pip install '{EXPORTERS[name].pip_requirement}'" in capsys.readouterr().err


@pytest.mark.parametrize(
    "engine_name",
    [
        "simulated",
        pytest.param("local", marks=pytest.mark.slow),
        pytest.param("docker", marks=[pytest.mark.docker, pytest.mark.slow]),
    ],
)
def test_mlcommons_checker_accepts_the_quickstart_of_every_engine(
    engine_name: str, pytestconfig: pytest.Config, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """The program itself, as a user starts it, on every result of a real run."""
    if engine_name == "docker":
        request.getfixturevalue("docker_engine")
    run = run_quickstart(pytestconfig.rootpath, engine_name, tmp_path / "runs", SHORT)
    out = tmp_path / "out"

    done = CliRunner().invoke(cli.app, ["export", str(run), "--to", "mlperf", "--out", str(out)])

    results = sorted(out.glob("ensayo/results/*/*/result_*.txt"))
    messages = [line for line in done.stderr.splitlines() if not re.search(": (degraded|invalid): ", line)]
    assert (messages, len(results)) == ([], 3)  # verdicts of a busy host are printed, too
    for result in results:
        program = [sys.executable, "-m", "mlperf_logging.compliance_checker", "--config", str(out / "rules.yaml")]
        log = ["--log_output", str(tmp_path / "checker.log")]
        checked = subprocess.run([*program, *log, str(result)], capture_output=True, text=True, check=False)
        assert checked.returncode == 0, checked.stdout + checked.stderr
