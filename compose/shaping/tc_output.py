"""Parser of the output of `tc` and `iptables`.

The parser reads class rates, queue counters, `tc` filters and packet filter rules.
"""

import json
import re
from collections.abc import Iterable, Mapping

from services.schema.component import FrozenRecord

# Plain text is parsed, since iproute2 prints classes as JSON only from version 6.7 on.
_CLASS_PATTERN = re.compile(r"^class htb (\S+) .*?rate ([0-9.]+)([KMGT]?)bit ceil ([0-9.]+)([KMGT]?)bit", re.MULTILINE)
_DEVICE_PATTERN = re.compile(r"^device (\S+)$", re.MULTILINE)
_PREFIX_FACTORS = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_STRUCTURE_HEADER = "structure"
_COUNTER_PATTERN = re.compile(r"(refcnt|direct_packets_stat) \d+ ?")
RATE_TOLERANCE = 0.01  # relative; `tc` prints five digits at most


def parse_interface_name(link_script_output: str) -> str:
    """Return the name of a node's network interface from the output of a script.

    The script shaped the node's link and printed the name of the node's interface on the data network.
    """
    return next(line.split()[1] for line in link_script_output.splitlines() if line.startswith("interface "))


class QueueCounters(FrozenRecord):
    """Counters of a network device's root queue, counted since the device was shaped."""

    packets: int = 0
    drops: int = 0
    overlimits: int = 0  # how often a packet had to wait for the rate limit
    backlog_bytes: int = 0

    def growth_since(self, earlier_counters: "QueueCounters") -> "QueueCounters":
        """Return the growth of each counter since an earlier reading.

        The result contains the current value of the backlog instead of its growth.
        """
        return QueueCounters(
            packets=self.packets - earlier_counters.packets,
            drops=self.drops - earlier_counters.drops,
            overlimits=self.overlimits - earlier_counters.overlimits,
            backlog_bytes=self.backlog_bytes,
        )


def parse_htb_rates_bps(tc_output: str) -> dict[tuple[str, str], float]:
    """Parse the rate limits that the kernel enforces from the output of `tc`.

    The result maps (direction, HTB class) to bit/s.

    Args:
        tc_output: for each direction a line `device NAME`, then the output of `tc class show`.
    """
    parts = _DEVICE_PATTERN.split(tc_output)[1:]
    return {
        (direction, match[1]): float(match[4]) * _PREFIX_FACTORS[match[5]]
        for direction, text in zip(parts[::2], parts[1::2], strict=True)
        for match in _CLASS_PATTERN.finditer(text)
    }


def htb_rate_differences(expected_rates_bps: Mapping[tuple[str, str], float], link_script_output: str) -> list[str]:
    """Return a message for each HTB class whose rate in the kernel differs from the expected rate.

    Args:
        expected_rates_bps: (direction, class) -> bit/s.
        link_script_output: output of a script that shapes a link or prints its state.
    """
    actual_bps = parse_htb_rates_bps(link_script_output)
    return [
        f"class {class_id} of {direction} has {_format_rate(actual_bps.get((direction, class_id)))} "
        f"instead of {rate:g} bit/s"
        for (direction, class_id), rate in expected_rates_bps.items()
        if abs(actual_bps.get((direction, class_id), 0.0) - rate) > RATE_TOLERANCE * rate
    ]


def parse_queue_counters(script_output: str) -> dict[str, QueueCounters]:
    """Parse the packet counters of root queues from the output of `tc -s`.

    The result maps each device to its counters.

    Args:
        script_output: lines `NAME JSON`, where JSON is the output of `tc -s -j qdisc show`.
    """
    counters = {}
    for line in script_output.splitlines():
        device, _, text = line.partition(" ")
        roots = [row for row in json.loads(text) if row.get("root") and row["kind"] == "htb"]
        for row in roots:
            counters[device] = QueueCounters(
                packets=row["packets"], drops=row["drops"], overlimits=row["overlimits"], backlog_bytes=row["backlog"]
            )
    return counters


def counter_script_lines(devices: Iterable[str]) -> list[str]:
    """Return script lines that print the queue counters of network devices.

    The output has one line `NAME JSON` per device. `tc` and `echo` are separate lines, because `echo "$(tc …)"` would
    hide a failure of `tc`.
    """
    return [line for name in devices for line in (f"text=$(tc -s -j qdisc show dev {name})", f'echo "{name} $text"')]


def make_tc_show_lines(*network_devices: str) -> list[str]:
    """Return script lines that print the queues and filters of network devices.

    `parse_qdiscs_and_filters` reads the output of these lines.
    """
    commands = ("qdisc show dev {}", "filter show dev {}", "filter show dev {} ingress")
    tc_lines = (f"tc {command.format(device)}" for device in dict.fromkeys(network_devices) for command in commands)
    return [f"echo {_STRUCTURE_HEADER}", *tc_lines]


def parse_qdiscs_and_filters(link_script_output: str) -> str:
    """Return the queues and filters that a script has printed.

    The parameters of queues are kept; counters are left out.
    """
    return _COUNTER_PATTERN.sub("", link_script_output.partition(f"\n{_STRUCTURE_HEADER}\n")[2])


def parse_packet_filter_rules(iptables_output: str) -> list[str]:
    """Return the packet filter rules that Ensayo has added, from the output of `iptables-nft -S`.

    The rules are sorted.
    """
    return sorted(line.strip() for line in iptables_output.splitlines() if line.startswith("-A ") and "ensayo-" in line)


def _format_rate(rate_bps: float | None) -> str:
    return "no rate" if rate_bps is None else f"{rate_bps:g}"
