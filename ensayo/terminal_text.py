"""How do numbers read on a terminal?"""

from collections.abc import Iterator, Mapping, Sequence

from compose.host.admission import Admission
from services.plan import Plan

MINUTE, HOUR = 60, 3600


def duration(seconds: float) -> str:
    """Two significant units at most: `0.4 s`, `12 s`, `3 min 20 s`, `2 h 5 min`."""
    whole = round(seconds)
    if whole < MINUTE:
        return f"{seconds:.1f} s" if seconds < 10 else f"{whole} s"  # noqa: PLR2004 - one decimal below ten
    if whole < HOUR:
        return f"{whole // MINUTE} min {whole % MINUTE} s"
    return f"{whole // HOUR} h {whole % HOUR // MINUTE} min"


def size(count: float) -> str:
    """Bytes with a decimal prefix."""
    for prefix in ("B", "kB", "MB", "GB"):
        if count < 1000:  # noqa: PLR2004 - decimal prefixes
            return f"{count:.3g} {prefix}"
        count /= 1000
    return f"{count:.3g} TB"


def labels(swept: Mapping[str, object]) -> str:
    """Swept values other than the workers, which stand in a column of their own."""
    others = [name for name in swept if name != "workers"]
    return ", ".join(f"{_short(name, others)} {swept[name]}" for name in others)


def _short(path: str, others: Sequence[str]) -> str:
    """The end of a dotted path, as long as it takes to tell it from the others: `worker.uplink`, `server.uplink`."""
    parts = path.split(".")
    ends = (".".join(parts[-count:]) for count in range(1, len(parts)))
    alone = (end for end in ends if sum(f".{other}".endswith(f".{end}") for other in others) == 1)
    return next(alone, path)


def admission(allowed: Admission, plans: Sequence[Plan]) -> Iterator[str]:
    """What was found about this host and a scenario: a line or two, nothing where time is virtual."""
    if allowed.capacity is None or allowed.bottleneck is None:
        return
    needed = allowed.bottleneck
    used = ", ".join(f"{each:g}" for each in sorted({plan.dilation for plan in plans}))
    yield f"dilation {used}; this host ({allowed.capacity.provenance}) needs {needed.required_dilation:g}"
    yield f"most is wanted by {needed.trial}: {needed.bottleneck}"


def choices(plans: Sequence[Plan]) -> Iterator[str]:
    """What plans have chosen themselves, by what each way would take: a line per trial that left something open."""
    for plan in plans:
        if plan.exchange_s_by_choice:
            first, *others = sorted(plan.exchange_s_by_choice, key=plan.exchange_s_by_choice.__getitem__)
            told = ", ".join(f"{kind} {_ms(plan.exchange_s_by_choice[kind])}" for kind in others)
            yield f"{plan.trial[:3]} {title(plan)}: {first}, {_ms(plan.exchange_s_by_choice[first])} an exchange; {told}"


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.4g} ms"


def title(plan: Plan) -> str:
    """A trial in a few words."""
    workers = f"{plan.workers} worker{'s' if plan.workers > 1 else ''}"
    repeat = f"repeat {plan.repeat}" if plan.repeat else ""
    return ", ".join(part for part in (plan.label, workers, labels(plan.labels), repeat) if part)
