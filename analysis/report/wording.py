"""How numbers are written for people, the same on the page and in the figures."""

import math
from collections.abc import Iterable, Mapping

NONE = "\N{EN DASH}"
DIGITS = 3
TINY = 1e-5  # below it zeros are harder to count than a power is to read
PREFIXES = {-2: "\N{MICRO SIGN}", -1: "m", 0: "", 1: "k", 2: "M", 3: "G"}  # power of 1000 -> prefix


def number(value: float | None) -> str:
    """Three significant digits, "2.10", "12.3", "1,180", "1.02e-12"; a dash where there is no number."""
    if value is None or not math.isfinite(value):
        return NONE
    if value == 0:
        return "0"
    if abs(value) < TINY:
        return f"{value:.{DIGITS - 1}e}"
    magnitude = math.floor(math.log10(abs(value)))
    return f"{value:,.{max(0, DIGITS - 1 - magnitude)}f}"


def share(value: float | None, digits: int = 0) -> str:
    """A share of one: "48%"."""
    return NONE if value is None else f"{value:.{digits}%}"


def difference(value: float | None) -> str:
    """A share with its sign: "+4.2%"."""
    return NONE if value is None else f"{round(value, 3) + 0.0:+.1%}"  # + 0.0 turns -0.0 into 0.0


def milliseconds(value: float | None) -> str:
    """Seconds as a bare number of milliseconds."""
    return number(None if value is None else 1000 * value)


def minutes(value: float | None) -> str:
    """Two decimals, as results are published: "366.19", "0.12"."""
    return NONE if value is None or not math.isfinite(value) else f"{value:,.2f}"


def volume(counts: Mapping[str, int]) -> str:
    """The sum over the nodes in the decimal unit that fits: "19.1 MB"."""
    value, units = float(sum(counts.values())), ["B", "kB", "MB", "GB", "TB"]
    power = min(len(units) - 1, int(math.log10(value) // DIGITS)) if value >= 1 else 0
    return f"{number(value / 1000**power)} {units[power]}" if power else f"{value:.0f} B"


def quantity(value: float | None, unit: str) -> str:
    """With the unit's prefix: 1e8 bit/s is "100 Mbit/s", 0.005 s is "5.00 ms"; 0.01 in % is "1.00%"."""
    if unit == "%":
        return NONE if value is None else f"{number(100 * value)}%"
    if not value or not math.isfinite(value):
        return f"0 {unit}" if value == 0 else NONE
    power = min(max(math.floor(math.log10(abs(value)) / DIGITS), min(PREFIXES)), max(PREFIXES))
    return f"{number(value / 1000**power)} {PREFIXES[power]}{unit}"


def workers(count: int) -> str:
    """One worker, four workers: "1 worker", "4 workers"."""
    return f"{count} worker{'s' * (count != 1)}"


def counted(count: int, noun: str) -> str:
    """With its noun: "1 result", "1,309 results"."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def listed(names: Iterable[str]) -> str:
    """Names as a sentence lists them: "a", "a and b", "a, b and c"."""
    *others, last = [*names] or [""]
    return f"{', '.join(others)} and {last}" if others else last


def sentence(text: str) -> str:
    """With a capital at the beginning."""
    return text[:1].upper() + text[1:]
