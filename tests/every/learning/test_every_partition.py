"""Tests of every partition of the training samples: each sample belongs to exactly one worker."""

from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from services.learning.datasets import Digits, SyntheticRegression
from services.learning.partitions import (
    AnyPartition,
    DirichletPartition,
    IidPartition,
    Partition,
    ShardsPartition,
    SizesPartition,
)
from services.learning.partitions.assignment import assign_training_samples, summarise_parts

WORKERS = 4
EXAMPLES: list[Partition] = [
    IidPartition(),
    DirichletPartition(alpha=0.5),
    ShardsPartition(per_worker=2),
    SizesPartition(shares=(4, 3, 2, 1)),
]
OWNING = [partition for partition in EXAMPLES if not partition.shares_all_samples]

every_partition = pytest.mark.parametrize("partition", EXAMPLES, ids=lambda partition: partition.kind)
every_owning_partition = pytest.mark.parametrize("partition", OWNING, ids=lambda partition: partition.kind)
some_labels = st.lists(st.integers(0, 5), min_size=1, max_size=80).map(np.array)


def test_examples_table_contains_every_partition() -> None:
    """A partition that is not in the table is not tested."""
    union, _ = get_args(AnyPartition)

    assert {type(partition) for partition in EXAMPLES} == set(get_args(union))


@every_partition
def test_partition_survives_a_json_round_trip(partition: Partition) -> None:
    """Every node reads the partition from the plan."""
    assert TypeAdapter(AnyPartition).validate_json(partition.model_dump_json()) == partition


@every_owning_partition
@given(labels=some_labels)
def test_every_sample_belongs_to_exactly_one_worker(partition: Partition, labels: np.ndarray) -> None:
    """A sample without an owner would never be used, one with two owners would count twice."""
    parts = partition.assign_samples(labels, WORKERS)

    assert len(parts) == WORKERS
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(labels)))
    assert all(part.tolist() == sorted(part.tolist()) for part in parts)


@every_owning_partition
def test_parts_are_repeatable_and_depend_on_the_seed(partition: Partition) -> None:
    """Each worker computes the parts itself, and all workers must find the same ones."""
    labels = Digits().load("float32").train_y
    first, repeated, other = (
        [part.tolist() for part in each.assign_samples(labels, WORKERS)]
        for each in (partition, partition, partition.model_copy(update={"seed": 1}))
    )

    assert first == repeated
    assert first != other


@every_partition
def test_a_single_worker_uses_all_samples(partition: Partition) -> None:
    """The baseline of a scenario has one worker, whatever the partition of the other trials."""
    assert partition.worker_count_conflict(1) is None
    assert assign_training_samples(partition, Digits(), 1) == ()


@every_owning_partition
def test_a_summary_counts_the_samples_of_each_worker_and_class(partition: Partition) -> None:
    """The plan and the report take their numbers from it."""
    labels = Digits().load("float32").train_y
    summary = summarise_parts(partition, Digits(), WORKERS)

    assert sum(summary.sizes) == len(labels)
    assert [sum(counts) for counts in summary.class_counts] == list(summary.sizes)
    assert np.sum(summary.class_counts, axis=0).tolist() == np.bincount(labels).tolist()


def test_iid_gives_no_worker_samples_of_its_own() -> None:
    """By default, all workers draw from all samples."""
    assert summarise_parts(IidPartition(), Digits(), WORKERS) == ((), ())


def test_parts_of_a_regression_have_no_counts_by_class() -> None:
    """Its targets are numbers."""
    summary = summarise_parts(SizesPartition(shares=(3, 1)), SyntheticRegression(samples=100), 2)

    assert summary == ((60, 20), ())


def test_a_smaller_alpha_makes_parts_more_uneven() -> None:
    """alpha is the strength of the imbalance: the mean share of the most frequent class of a worker."""
    labels = Digits().load("float32").train_y

    shares = []
    for alpha in (0.1, 10.0, 1e4):
        parts = [
            part for seed in range(5) for part in DirichletPartition(alpha=alpha, seed=seed).assign_samples(labels, 4)
        ]
        shares.append(np.mean([np.bincount(labels[part]).max() / len(part) for part in parts]))

    assert shares[0] > 0.35
    assert shares[1] > shares[2]
    assert shares[2] == pytest.approx(0.13, abs=0.02)  # more than 0.1, since the samples are drawn at random


def test_dirichlet_parts_have_equal_sizes() -> None:
    """So that an uneven mix of classes can be studied apart from uneven sizes."""
    parts = DirichletPartition(alpha=0.1).assign_samples(np.arange(103) % 7, 4)

    assert [len(part) for part in parts] == [26, 26, 26, 25]


def test_shards_have_the_samples_of_consecutive_classes() -> None:
    """With one shard per worker and as many workers as classes, each worker has one class."""
    labels = np.tile(np.arange(5), 20)

    parts = ShardsPartition(per_worker=1).assign_samples(labels, 5)

    assert sorted(set(labels[part].tolist()).pop() for part in parts) == [0, 1, 2, 3, 4]
    assert [len(set(labels[part].tolist())) for part in parts] == [1] * 5


def test_sizes_are_proportional_to_the_declared_shares() -> None:
    """Only the ratios count."""
    labels = np.zeros(100)

    for shares in ((4, 3, 2, 1), (0.4, 0.3, 0.2, 0.1)):
        assert [len(part) for part in SizesPartition(shares=shares).assign_samples(labels, 4)] == [40, 30, 20, 10]


def test_a_smaller_alpha_gives_more_uneven_mixes_of_classes() -> None:
    """Where a mix has no class left, a worker must draw a new mix, not a sample of all classes."""
    labels = np.repeat(np.arange(10), 100)

    entropies = []
    for alpha in (0.001, 0.1, 1.0, 100.0):
        partition = DirichletPartition(alpha=alpha)
        counts = [np.bincount(labels[part], minlength=10) for part in partition.assign_samples(labels, WORKERS)]
        shares = np.array(counts) / np.sum(counts, axis=1, keepdims=True)
        entropies.append(-np.sum(shares * np.log(np.where(shares > 0, shares, 1.0)), axis=1).mean())

    assert entropies == sorted(entropies)
    assert entropies[0] < 1.3  # at least log(2.5), since 250 samples have three classes or more
    assert entropies[-1] > 0.95 * np.log(10)
