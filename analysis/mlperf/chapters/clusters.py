"""Which systems are alike, and would another seed say the same?"""

from collections.abc import Iterator

import pandas as pd

from analysis.mlperf.chapters.base import Chapter, Column, Table
from analysis.mlperf.clusters import SEEDS, STABLE, Clustering, cluster
from analysis.mlperf.figures.cluster_map import cluster_map, span
from analysis.mlperf.reading.accelerators import family
from analysis.mlperf.study import Study, Workload
from analysis.report.wording import format_number

CHOSEN = (
    Column("workload", "workload"),
    Column("k", "clusters"),
    Column("silhouette", "silhouette"),
    Column("stability", "stability"),
    Column("stable", "stable?"),
)
TRIED = (*CHOSEN[:4], Column("chosen", "chosen"))
MEMBERS = (
    Column("workload", "workload"),
    Column("cluster", "cluster"),
    Column("systems", "systems"),
    Column("accelerators", "accelerators"),
    Column("speedup", "speedup S"),
    Column("efficiency", "E'"),
    Column("families", "kinds"),
)
RULE = (
    "K-means on log2 N, log2 S and E', each standardised to mean 0 and variance 1. k is the number of clusters from 2 "
    "to 6, and at most half of the different systems, with the largest mean silhouette. Stability is the mean adjusted "
    f"Rand index between the clusters that {len(SEEDS)} seeds find with one start each: 1 when all find the same, 0 "
    f"when they agree as by chance. Below {STABLE:g} they are called not stable, and are a picture of the systems "
    "rather than a finding about them."
)

Found = list[tuple[Workload, Clustering]]


def clusters(study: Study) -> Chapter | None:
    """K-means of each workload's systems; None where no workload has enough of them."""
    found = [(workload, each) for workload in study.workloads if (each := cluster(workload.systems)) is not None]
    if not found:
        return None
    few = [workload.name for workload in study.workloads if workload not in [each for each, _ in found]]
    return Chapter(
        "Clusters",
        _finding(found),
        (RULE, *([f"Too few different systems to cluster: {', '.join(few)}."] if few else [])),
        (
            Table("clusters-chosen", "The clusters that are drawn", CHOSEN, pd.DataFrame(_chosen(found))),
            Table("clusters-members", "What is in them", MEMBERS, pd.DataFrame(_members(found)), brief=False),
            Table("clusters-tried", "Every k that was tried", TRIED, pd.DataFrame(_tried(found)), brief=False),
        ),
        tuple(cluster_map(study, workload, clustering) for workload, clustering in found),
    )


def _finding(found: Found) -> str:
    shaky = [workload.name for workload, clustering in found if not clustering.best.stable]
    if not shaky:
        where = f"all {len(found)} workloads" if len(found) > 1 else f"the systems of {found[0][0].name}"
        return f"K-means finds stable clusters in {where}."
    return f"Clusters are not stable, other seeds find others: {', '.join(shaky)} ({len(shaky)} of {len(found)})."


def _chosen(found: Found) -> Iterator[dict[str, object]]:
    for workload, clustering in found:
        best = clustering.best
        yield {
            "workload": workload.name, "k": best.k, "silhouette": best.silhouette, "stability": best.stability,
            "stable": "yes" if best.stable else "NOT STABLE",
        }  # fmt: skip


def _tried(found: Found) -> Iterator[dict[str, object]]:
    for workload, clustering in found:
        for each in clustering.partitions:
            yield {
                "workload": workload.name, "k": each.k, "silhouette": each.silhouette, "stability": each.stability,
                "chosen": "yes" if each == clustering.best else "",
            }  # fmt: skip


def _members(found: Found) -> Iterator[dict[str, object]]:
    for workload, clustering in found:
        for label in range(clustering.best.k):
            yield _cluster(workload, clustering, label)


def _cluster(workload: Workload, clustering: Clustering, label: int) -> dict[str, object]:
    members = [each for each, own in zip(workload.systems, clustering.best.labels, strict=True) if own == label]
    counts = sorted(each.result.accelerator_count for each in members)
    speedups, efficiencies = sorted(each.speedup for each in members), sorted(each.efficiency for each in members)
    return {
        "workload": workload.name,
        "cluster": label + 1,
        "systems": len(members),
        "accelerators": span(f"{counts[0]:,}", f"{counts[-1]:,}"),
        "speedup": span(format_number(speedups[0]), format_number(speedups[-1])),
        "efficiency": span(format_number(efficiencies[0]), format_number(efficiencies[-1])),
        "families": ", ".join(sorted({family(each.result.accelerator) for each in members})),
        "names": "; ".join(f"{each.result.submitter} {each.result.system}" for each in members),
    }
