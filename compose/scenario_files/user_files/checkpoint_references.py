"""Reference to the earlier trial that a scenario continues: its path is made absolute."""

from pathlib import Path
from typing import Any

from compose.scenario_files.user_files.swept_sections import value_at

SECTION = ("recovery", "checkpoint")
KEY = "initial"


def resolve_initial_checkpoint(document: Any, folder: Path) -> None:
    """Make the path of the earlier trial absolute in place.

    Args:
        document: scenario, which need not be valid.
        folder: folder of the scenario file, to which paths are relative.
    """
    section = value_at(document, SECTION)
    if isinstance(section, dict) and isinstance(section.get(KEY), str) and section[KEY]:
        section[KEY] = str(Path(folder, section[KEY]).resolve())
