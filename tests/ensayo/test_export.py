"""`ensayo export`: what it says, and whether MLCommons' checker accepts the logs of every engine."""

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
from compose.runs.run import ScenarioFile, run_scenario
from compose.scenario_files.load import load_scenario, read_first_comment
from ensayo import cli
from ensayo.exit_codes import ExitCode
from ensayo.progress_display import SilentDisplay

SHORT = {"sweep.workers": "[2]", "workload.epochs": "1", "baseline": "false"}


def rehearsed(root: Path, engine: str, runs: Path, settings: Mapping[str, str]) -> Path:
    """The folder of a real run of the quickstart."""
    path = root / "scenarios" / "quickstart.yaml"
    source = ScenarioFile(load_scenario(path, settings, engine), path.read_text(), read_first_comment(path), "")
    chosen = create_engine(engine)
    return run_scenario(source, EngineChoice(chosen, "asked for"), runs, SilentDisplay(Console())).folder


@pytest.fixture(scope="module")
def short(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return rehearsed(pytestconfig.rootpath, "simulated", tmp_path_factory.mktemp("runs"), SHORT)


def test_the_command_says_where_it_wrote(short: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(cli.app, ["export", str(short), "--to", "csv", "--out", str(tmp_path / "out")])

    assert (done.exit_code, done.stdout) == (ExitCode.OK, f"{tmp_path / 'out'}\n")


def test_what_is_left_out_goes_to_standard_error(short: Path, tmp_path: Path) -> None:
    """A script reads the path; a person reads the rest."""
    done = CliRunner().invoke(cli.app, ["export", str(short), "--to", "hta", "--out", str(tmp_path / "out")])

    assert done.stdout == f"{tmp_path / 'out'}\n"
    assert "servers are left out: HTA supports only ranks that compute" in done.stderr


def test_without_a_place_an_export_lies_in_the_run(short: Path) -> None:
    done = CliRunner().invoke(cli.app, ["export", str(short), "--to", "chakra"])

    assert done.stdout == f"{short / 'exports' / 'chakra'}\n"


def test_the_help_names_every_format() -> None:
    """A format that help doesn't know is found by nobody."""
    told = CliRunner().invoke(cli.app, ["export", "--help"], env={"COLUMNS": "200"}).output

    assert all(kind in told for kind in EXPORTERS)


@pytest.mark.parametrize("name", ["perfetto", "tensorboard", "chakra"])
def test_a_missing_library_is_named_with_the_extra_that_brings_it(
    name: str, short: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """These formats need libraries that nothing else here needs."""
    for module in [module for module in sys.modules if module.partition(".")[0] == name]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr(sys, "argv", ["ensayo", "export", str(short), "--to", name, "--out", str(tmp_path / "out")])

    with pytest.raises(SystemExit) as exited:
        cli.main()

    assert exited.value.code == ExitCode.NOT_STARTED
    assert f"pip install 'ensayo[{EXPORTERS[name].pip_extra}]'" in capsys.readouterr().err


@pytest.mark.parametrize(
    "of",
    [
        "simulated",
        pytest.param("local", marks=pytest.mark.slow),
        pytest.param("docker", marks=[pytest.mark.docker, pytest.mark.slow]),
    ],
)
def test_mlcommons_checker_accepts_the_quickstart_of_every_engine(
    of: str, pytestconfig: pytest.Config, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """The program itself, as a user starts it, on every result of a real run."""
    if of == "docker":
        request.getfixturevalue("docker_engine")
    run = rehearsed(pytestconfig.rootpath, of, tmp_path / "runs", SHORT)
    out = tmp_path / "out"

    done = CliRunner().invoke(cli.app, ["export", str(run), "--to", "mlperf", "--out", str(out)])

    results = sorted(out.glob("ensayo/results/*/*/result_*.txt"))
    said = [line for line in done.stderr.splitlines() if not re.search(": (degraded|invalid): ", line)]
    assert (said, len(results)) == ([], 3)  # of a busy host, the verdicts are told
    for result in results:
        program = [sys.executable, "-m", "mlperf_logging.compliance_checker", "--config", str(out / "rules.yaml")]
        log = ["--log_output", str(tmp_path / "checker.log")]
        checked = subprocess.run([*program, *log, str(result)], capture_output=True, text=True, check=False)
        assert checked.returncode == 0, checked.stdout + checked.stderr
