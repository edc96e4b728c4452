"""Strategies that the fault search disturbs by default, as a scenario declares them."""

from typing import Any, TypeAlias

StrategyDocument: TypeAlias = dict[str, Any]

TOP_K: StrategyDocument = {"kind": "top_k", "ratio": 0.25}
COMPRESSORS: dict[str, StrategyDocument] = {
    "fp16": {"kind": "fp16"},
    "bf16": {"kind": "bf16"},
    "int8": {"kind": "int8"},
    "qsgd": {"kind": "qsgd"},
    "terngrad": {"kind": "terngrad"},
    "one_bit": {"kind": "error_feedback", "inner": {"kind": "one_bit"}},
    "sign": {"kind": "error_feedback", "inner": {"kind": "sign"}},
    "top_k": {"kind": "error_feedback", "inner": TOP_K},
    "top_k_without_feedback": TOP_K,
    "random_k": {"kind": "error_feedback", "inner": {"kind": "random_k", "ratio": 0.25}},
    "dgc": {"kind": "dgc", "ratio": 0.25},
}
COLLECTIVES: dict[str, StrategyDocument] = {
    **{
        kind: {"kind": kind}
        for kind in ("ring", "double_tree", "halving_doubling", "recursive_doubling", "tree", "reduce_to_one")
    },
    "hierarchical": {"kind": "hierarchical", "size": 2},
    "hierarchical_copy": {"kind": "hierarchical_copy", "size": 2},
}
SYNCHRONISERS: dict[str, StrategyDocument] = {
    "bsp": {"kind": "bsp"},
    "backup": {"kind": "backup", "backups": 1},
    "elastic": {"kind": "elastic"},
    "greedy": {"kind": "greedy"},
    "asp": {"kind": "asp"},
    "ssp": {"kind": "ssp", "staleness": 2},
    "dssp": {"kind": "dssp", "low": 1, "high": 4},
    "gba": {"kind": "gba"},
}
AT_HALF: StrategyDocument = {"kind": "at", "fraction": 0.5}


# `elastic` allows one server only: several servers would drop different gradients.
SYNCHRONISERS_OF_SEVERAL_SERVERS = [name for name in SYNCHRONISERS if name != "elastic"]


def _server(synchroniser: str, servers: int = 1, **keys: Any) -> StrategyDocument:
    return {"kind": "parameter_server", "synchrony": SYNCHRONISERS[synchroniser], "servers": servers, **keys}


def _colocated(synchroniser: str) -> StrategyDocument:
    return {
        "kind": "parameter_server",
        "synchrony": SYNCHRONISERS[synchroniser],
        "placement": {"kind": "colocated"},
    }


DILOCO: StrategyDocument = {"kind": "diloco", "period": 4, "fragments": 2, "overlap_steps": 1}
STRATEGY_TABLE: dict[str, StrategyDocument] = {
    "none": {"kind": "none"},
    **{f"all_reduce_{name}": {"kind": "all_reduce", "collective": document} for name, document in COLLECTIVES.items()},
    **{f"all_reduce_{name}": {"kind": "all_reduce", "compress": document} for name, document in COMPRESSORS.items()},
    "all_reduce_power_sgd": {"kind": "all_reduce", "compress": {"kind": "power_sgd", "rank": 1, "min_ratio": 0}},
    "all_reduce_buckets": {"kind": "all_reduce", "overlap": {"kind": "buckets", "bucket_size": "40B"}},
    "all_reduce_priority": {"kind": "all_reduce", "overlap": {"kind": "priority", "partition_size": "40B"}},
    **{f"server_{name}": _server(name) for name in SYNCHRONISERS},
    **{f"servers_{name}": _server(name, servers=3) for name in SYNCHRONISERS_OF_SEVERAL_SERVERS},
    **{f"colocated_{name}": _colocated(name) for name in SYNCHRONISERS_OF_SEVERAL_SERVERS},
    **{
        f"server_{synchroniser}_{name}": _server(synchroniser, servers=2, compress=COMPRESSORS[name])
        for synchroniser in ("bsp", "asp")
        for name in ("int8", "top_k", "one_bit", "dgc")
    },
    "server_asp_staleness": _server("asp", staleness={"kind": "inverse"}, rate="as_given"),
    "local_sgd": {"kind": "local_sgd", "period": 3},
    "local_sgd_fp16": {"kind": "local_sgd", "period": 2, "compress": COMPRESSORS["fp16"]},
    "post_local_sgd": {"kind": "post_local_sgd", "period": 3},
    "diloco": {"kind": "diloco", "period": 3},
    "diloco_streaming": DILOCO,
    "d_psgd": {"kind": "d_psgd"},
    "d_psgd_update_first": {"kind": "d_psgd", "topology": {"kind": "exponential"}, "order": "update_first"},
    "noloco": {"kind": "noloco", "period": 2},
    "partial_all_reduce": {"kind": "partial_all_reduce", "group_size": 2},
    "ad_psgd": {"kind": "ad_psgd"},
    "easgd_bsp": {"kind": "easgd", "period": 2},
    "easgd_asp": {"kind": "easgd", "period": 2, "synchrony": SYNCHRONISERS["asp"], "servers": 2},
    "switch_ring_to_bsp": {
        "kind": "strategy_switch",
        "before": {"kind": "all_reduce"},
        "after": _server("bsp", servers=2),
        "when": AT_HALF,
    },
    "switch_ring_to_asp": {
        "kind": "strategy_switch",
        "before": {"kind": "all_reduce"},
        "after": _server("asp", servers=2),
        "when": AT_HALF,
    },
    "switch_asp_to_ring": {
        "kind": "strategy_switch",
        "before": _server("asp", servers=2),
        "after": {"kind": "all_reduce"},
        "when": AT_HALF,
    },
    "switch_ring_to_colocated_asp": {
        "kind": "strategy_switch",
        "before": {"kind": "all_reduce"},
        "after": _colocated("asp"),
        "when": AT_HALF,
    },
    "sync_switch": {"kind": "sync_switch", "servers": 2, "fraction": 0.5},
    "sync_switch_elastic": {"kind": "sync_switch", "fraction": 0.5, "stragglers": "elastic"},
}
