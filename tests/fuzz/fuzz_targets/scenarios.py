"""Fuzz targets that load scenarios."""

from compose.scenario_files.load import SHIPPED_FOLDER, load_scenario
from fuzz_targets.target import empty_folder

OPTION_SEPARATOR = "="


def read_scenario_file(content: bytes) -> None:
    """Load a scenario file."""
    path = empty_folder("scenario") / "scenario.yaml"
    path.write_bytes(content)
    load_scenario(path)


def read_setting(content: bytes) -> None:
    """Load a shipped scenario with the argument `--set KEY=VALUE`."""
    key, _, value = content.decode(errors="replace").partition(OPTION_SEPARATOR)
    load_scenario(SHIPPED_FOLDER / "smoke.yaml", {key: value})
