"""Filters of `tc` that assign packets to HTB classes by their source or target address.

They are hash tables of tc's u32 classifier over the last byte of an address: one look-up, however many nodes there are.
"""

from collections.abc import Mapping

SOURCE_OFFSET, TARGET_OFFSET = 12, 16  # bytes into an IPv4 header
_MATCH_KEYWORDS = {SOURCE_OFFSET: "src", TARGET_OFFSET: "dst"}
FIRST_TABLE_NUMBER = 0x10


def last_octet(address: str) -> int:
    """Return the last byte of an IPv4 address.

    It is unique in a subnet of 256 addresses.
    """
    return int(address.rsplit(".", 1)[1])


def tc_filter_lines_by_address(device: str, ip_header_offset: int, class_id_by_address: Mapping[str, str]) -> list[str]:
    """Return lines for `tc -batch` that sort packets into HTB classes by address.

    The address is either the source or the target address.

    Args:
        device: interface with an HTB whose handle is 1:.
        ip_header_offset: address of the packet that decides, `SOURCE_OFFSET` or `TARGET_OFFSET`.
        class_id_by_address: address -> class.
    """
    filter_add, table, keyword = _tc_filter_add_prefix(device), FIRST_TABLE_NUMBER, _MATCH_KEYWORDS[ip_header_offset]
    return [
        *_u32_hash_table_lines(device, table),
        f"{filter_add} u32 ht 800:: match u32 0 0 hashkey mask 0x000000ff at {ip_header_offset} link {table:x}:",
        *(
            f"{filter_add} u32 ht {table:x}:{last_octet(address):x}: match ip {keyword} {address}/32 flowid {class_id}"
            for address, class_id in class_id_by_address.items()
        ),
    ]


def tc_filter_lines_by_pair(device: str, class_id_by_address_pair: Mapping[tuple[str, str], str]) -> list[str]:
    """Return lines for `tc -batch` that sort packets into HTB classes by pair of addresses.

    The pair consists of the source and the target address. A table of sources leads to tables of targets. Sources with
    the same targets and classes share a table of targets.

    Args:
        device: interface with an HTB whose handle is 1:.
        class_id_by_address_pair: (source address, target address) -> class.
    """
    target_classes: dict[str, dict[str, str]] = {}  # source -> target -> class
    for (source, target), class_id in class_id_by_address_pair.items():
        target_classes.setdefault(source, {})[target] = class_id
    target_tables: dict[tuple[tuple[str, str], ...], int] = {}
    prefix, source_table = _tc_filter_add_prefix(device), FIRST_TABLE_NUMBER
    lines = _u32_hash_table_lines(device, source_table)
    lines += [f"{prefix} u32 ht 800:: match u32 0 0 hashkey mask 0x000000ff at {SOURCE_OFFSET} link {source_table:x}:"]
    for source, classes in target_classes.items():
        key = tuple(sorted(classes.items()))
        if key not in target_tables:
            table = target_tables[key] = source_table + 1 + len(target_tables)
            lines += _u32_hash_table_lines(device, table) + [
                f"{prefix} u32 ht {table:x}:{last_octet(target):x}: match ip dst {target}/32 flowid {class_id}"
                for target, class_id in classes.items()
            ]
        lines.append(
            f"{prefix} u32 ht {source_table:x}:{last_octet(source):x}: match ip src {source}/32 "
            f"hashkey mask 0x000000ff at {TARGET_OFFSET} link {target_tables[key]:x}:"
        )
    return lines


def _tc_filter_add_prefix(device: str) -> str:
    return f"filter add dev {device} parent 1: protocol ip prio 1"


def _u32_hash_table_lines(device: str, table_number: int) -> list[str]:
    return [f"{_tc_filter_add_prefix(device)} handle {table_number:x}: u32 divisor 256"]
