"""What does the kernel say that it does? Rates of classes, counters of queues, from what `tc` prints."""

import json
import re
from collections.abc import Iterable, Mapping

from services.schema.component import FrozenRecord

# iproute2 prints classes as JSON only since 6.7.
_CLASS = re.compile(r"^class htb (\S+) .*?rate ([0-9.]+)([KMGT]?)bit ceil ([0-9.]+)([KMGT]?)bit", re.MULTILINE)
_DEVICE = re.compile(r"^device (\S+)$", re.MULTILINE)
_PREFIXES = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_STRUCTURE = "structure"
_COUNTED = re.compile(r"(refcnt|direct_packets_stat) \d+ ?")
ROUNDING = 0.01  # `tc` prints five digits at most


def interface(printed: str) -> str:
    """The name of the node's interface on the data network, as its script has found it."""
    return next(line.split()[1] for line in printed.splitlines() if line.startswith("interface "))


class Queue(FrozenRecord):
    """What a device has counted since it was shaped."""

    packets: int = 0
    drops: int = 0
    overlimits: int = 0  # times that something had to wait
    backlog_bytes: int = 0

    def since(self, before: "Queue") -> "Queue":
        """What has been counted since then; what waits, waits now."""
        return Queue(
            packets=self.packets - before.packets,
            drops=self.drops - before.drops,
            overlimits=self.overlimits - before.overlimits,
            backlog_bytes=self.backlog_bytes,
        )


def ceilings(printed: str) -> dict[tuple[str, str], float]:
    """(device, class) -> bit/s that it can't exceed, from `device NAME` and what `tc class show` prints after it."""
    parts = _DEVICE.split(printed)[1:]
    return {
        (device, found[1]): float(found[4]) * _PREFIXES[found[5]]
        for device, text in zip(parts[::2], parts[1::2], strict=True)
        for found in _CLASS.finditer(text)
    }


def differences(wanted: Mapping[tuple[str, str], float], printed: str) -> list[str]:
    """What the kernel has that differs from what was wanted."""
    found = ceilings(printed)
    return [
        f"class {classid} of {device} is {_shown(found.get((device, classid)))} instead of {rate:g} bit/s"
        for (device, classid), rate in wanted.items()
        if abs(found.get((device, classid), 0.0) - rate) > ROUNDING * rate
    ]


def queues(printed: str) -> dict[str, Queue]:
    """Device -> its root's counters, from lines of `NAME JSON`, the latter from `tc -s -j qdisc show`."""
    found = {}
    for line in printed.splitlines():
        device, _, text = line.partition(" ")
        roots = [entry for entry in json.loads(text) if entry.get("root") and entry["kind"] == "htb"]
        for entry in roots:
            found[device] = Queue(
                packets=entry["packets"],
                drops=entry["drops"],
                overlimits=entry["overlimits"],
                backlog_bytes=entry["backlog"],
            )
    return found


def counting(devices: Iterable[str]) -> list[str]:
    """Lines of a script that print what `queues` reads; in two steps, since `echo` would hide that `tc` has failed."""
    return [
        line for name in devices for line in (f"counted=$(tc -s -j qdisc show dev {name})", f'echo "{name} $counted"')
    ]


def showing_structure(*devices: str) -> list[str]:
    """The last lines of a script, which print what `structure` reads."""
    what = ("qdisc show dev {}", "filter show dev {}", "filter show dev {} ingress")
    return [f"echo {_STRUCTURE}", *(f"tc {each.format(name)}" for name in dict.fromkeys(devices) for each in what)]


def structure(printed: str) -> str:
    """Queues with their parameters and filters, without what they count."""
    return _COUNTED.sub("", printed.partition(f"\n{_STRUCTURE}\n")[2])


def rules(printed: str) -> list[str]:
    """Our rules of the packet filter, sorted."""
    return sorted(line.strip() for line in printed.splitlines() if line.startswith("-A ") and "ensayo-" in line)


def _shown(rate: float | None) -> str:
    return "missing" if rate is None else f"{rate:g}"
