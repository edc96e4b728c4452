"""Which class takes a packet? Hash tables of u32 over the last byte of an address: one look, however many nodes."""

from collections.abc import Mapping

SOURCE_AT, TARGET_AT = 12, 16  # bytes into an IPv4 header
_NAMES = {SOURCE_AT: "src", TARGET_AT: "dst"}
FIRST_TABLE = 0x10


def octet(address: str) -> int:
    """The last byte of an address, which is unique in a subnet of 256."""
    return int(address.rsplit(".", 1)[1])


def by_address(device: str, at: int, classes: Mapping[str, str]) -> list[str]:
    """Lines for `tc -batch` that send packets to classes by one of their addresses.

    Args:
        device: which has an HTB with handle 1:.
        at: which of a packet's addresses counts, `SOURCE_AT` or `TARGET_AT`.
        classes: address -> class.
    """
    start = f"filter add dev {device} parent 1: protocol ip prio 1"
    return [
        *_table(device, FIRST_TABLE),
        f"{start} u32 ht 800:: match u32 0 0 hashkey mask 0x000000ff at {at} link {FIRST_TABLE:x}:",
        *(
            f"{start} u32 ht {FIRST_TABLE:x}:{octet(address):x}: match ip {_NAMES[at]} {address}/32 flowid {classid}"
            for address, classid in classes.items()
        ),
    ]


def by_both(device: str, classes: Mapping[tuple[str, str], str]) -> list[str]:
    """The same by (source, target): a table of sources leads to tables of targets, which like sources share."""
    rows: dict[str, dict[str, str]] = {}
    for (source, target), classid in classes.items():
        rows.setdefault(source, {})[target] = classid
    tables: dict[tuple[tuple[str, str], ...], int] = {}
    start = f"filter add dev {device} parent 1: protocol ip prio 1"
    lines = _table(device, FIRST_TABLE)
    lines += [f"{start} u32 ht 800:: match u32 0 0 hashkey mask 0x000000ff at {SOURCE_AT} link {FIRST_TABLE:x}:"]
    for source, row in rows.items():
        key = tuple(sorted(row.items()))
        if key not in tables:
            tables[key] = FIRST_TABLE + 1 + len(tables)
            lines += _table(device, tables[key]) + [
                f"{start} u32 ht {tables[key]:x}:{octet(target):x}: match ip dst {target}/32 flowid {classid}"
                for target, classid in row.items()
            ]
        lines += [
            (
                f"{start} u32 ht {FIRST_TABLE:x}:{octet(source):x}: match ip src {source}/32 "
                f"hashkey mask 0x000000ff at {TARGET_AT} link {tables[key]:x}:"
            )
        ]
    return lines


def _table(device: str, number: int) -> list[str]:
    return [f"filter add dev {device} parent 1: protocol ip prio 1 handle {number:x}: u32 divisor 256"]
