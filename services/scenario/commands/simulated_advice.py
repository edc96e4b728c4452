"""Advice without the engine `simulated`, which can't run commands of the user."""

import re

LAST_OF_SEVERAL = re.compile(r", ([^,;:.]+),? or use (?:the engine|--engine) simulated")
LAST_OF_TWO = re.compile(r",? or use (?:the engine|--engine) simulated")


def leave_out_simulated_engine(advice: str) -> str:
    """Return a text without its last alternative `or use the engine simulated`; other texts are unchanged."""
    return LAST_OF_TWO.sub("", LAST_OF_SEVERAL.sub(r", or \1", advice))
