"""Report chapter on clusters of similar systems and on the stability of these clusters.

Clusters are stable if k-means with other seeds finds the same clusters.
"""

from collections.abc import Iterator

import pandas as pd

from analysis.mlperf.chapters.base import Chapter, ChapterTable, TableColumn
from analysis.mlperf.clusters import KMEANS_SEEDS, MIN_STABLE_RAND_INDEX, SystemClusterings, cluster_by_k_means
from analysis.mlperf.figures.cluster_map import draw_system_cluster_map, format_text_range
from analysis.mlperf.study import MlperfStudy, WorkloadComparison
from analysis.report.wording import format_number

CHOSEN_COLUMNS = (
    TableColumn("workload", "workload"),
    TableColumn("k", "clusters"),
    TableColumn("silhouette", "silhouette"),
    TableColumn("stability", "stability"),
    TableColumn("stable", "stable?"),
)
TRIED_COLUMNS = (*CHOSEN_COLUMNS[:4], TableColumn("chosen", "chosen"))
MEMBER_COLUMNS = (
    TableColumn("workload", "workload"),
    TableColumn("cluster", "cluster"),
    TableColumn("systems", "systems"),
    TableColumn("accelerators", "accelerators"),
    TableColumn("speedup", "speedup S"),
    TableColumn("efficiency", "E'"),
    TableColumn("accelerator_kinds", "kinds"),
)
RULE_TEXT = (
    "K-means on log2 N, log2 S and E', each standardised to mean 0 and variance 1. k is the number of clusters from 2 "
    "to 6, and at most half of the different systems, with the largest mean silhouette. Stability is the mean adjusted "
    f"Rand index between the clusters of {len(KMEANS_SEEDS)} seeds with one start each: 1 for equal clusters, 0 for "
    f"agreement by chance. Clusters with less than {MIN_STABLE_RAND_INDEX:g} are called not stable: they illustrate "
    "the systems and are no finding about them."
)

WorkloadClusterings = list[tuple[WorkloadComparison, SystemClusterings]]


def system_clusters_chapter(study: MlperfStudy) -> Chapter | None:
    """Return the report chapter with k-means clusters of the systems of each workload.

    Return None if there are too few systems.
    """
    clusterings = [(workload, each) for workload in study.workloads if (each := cluster_by_k_means(workload.systems))]
    if not clusterings:
        return None
    too_few = [workload.name for workload in study.workloads if workload not in [each for each, _ in clusterings]]
    notes = [f"Too few different systems to cluster: {', '.join(too_few)}."] if too_few else []
    chosen = pd.DataFrame(_chosen_cluster_count_rows(clusterings))
    members = pd.DataFrame(_cluster_rows(clusterings))
    tried = pd.DataFrame(_make_cluster_count_rows(clusterings))
    tables = (
        ChapterTable("clusters-chosen", "Number of clusters chosen for each workload", CHOSEN_COLUMNS, chosen),
        ChapterTable("clusters-members", "Members of the clusters", MEMBER_COLUMNS, members, is_short=False),
        ChapterTable("clusters-tried", "Every k that was tried", TRIED_COLUMNS, tried, is_short=False),
    )
    figures = tuple(draw_system_cluster_map(study, workload, clustering) for workload, clustering in clusterings)
    return Chapter("Clusters", _describe_cluster_stability(clusterings), (RULE_TEXT, *notes), tables, figures)


def _describe_cluster_stability(clusterings: WorkloadClusterings) -> str:
    unstable = [workload.name for workload, clustering in clusterings if not clustering.best_by_silhouette.is_stable]
    if not unstable:
        where = f"all {len(clusterings)} workloads" if clusterings[1:] else f"the systems of {clusterings[0][0].name}"
        return f"K-means finds stable clusters in {where}."
    count = f"{len(unstable)} of {len(clusterings)}"
    return f"Clusters are not stable, other seeds find different ones: {', '.join(unstable)} ({count})."


def _chosen_cluster_count_rows(workload_clusterings: WorkloadClusterings) -> Iterator[dict[str, object]]:
    for workload, clustering in workload_clusterings:
        best = clustering.best_by_silhouette
        yield {
            "workload": workload.name, "k": best.k, "silhouette": best.silhouette, "stability": best.stability,
            "stable": "yes" if best.is_stable else "no",
        }  # fmt: skip


def _make_cluster_count_rows(workload_clusterings: WorkloadClusterings) -> Iterator[dict[str, object]]:
    for workload, clustering in workload_clusterings:
        for each in clustering.assignments:
            yield {
                "workload": workload.name, "k": each.k, "silhouette": each.silhouette, "stability": each.stability,
                "chosen": "yes" if each == clustering.best_by_silhouette else "",
            }  # fmt: skip


def _cluster_rows(workload_clusterings: WorkloadClusterings) -> Iterator[dict[str, object]]:
    for workload, clustering in workload_clusterings:
        for label in range(clustering.best_by_silhouette.k):
            yield _cluster_row(workload, clustering, label)


def _cluster_row(workload: WorkloadComparison, clusterings: SystemClusterings, cluster_label: int) -> dict[str, object]:
    members = clusterings.best_by_silhouette.members(workload.systems, cluster_label)
    counts = sorted(each.result.accelerator_count for each in members)
    speedups, efficiencies = sorted(each.speedup for each in members), sorted(each.efficiency for each in members)
    return {
        "workload": workload.name,
        "cluster": cluster_label + 1,
        "systems": len(members),
        "accelerators": format_text_range(f"{counts[0]:,}", f"{counts[-1]:,}"),
        "speedup": format_text_range(format_number(speedups[0]), format_number(speedups[-1])),
        "efficiency": format_text_range(format_number(efficiencies[0]), format_number(efficiencies[-1])),
        "accelerator_kinds": ", ".join(sorted({each.result.accelerator_kind for each in members})),
        "names": "; ".join(f"{each.result.submitter} {each.result.system}" for each in members),
    }
