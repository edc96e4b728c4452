"""Whole trials in virtual time with the models of tokens: they learn, and n workers equal one worker."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

Document = dict[str, Any]
Simulate = Callable[..., Any]

SMALL = {"layers": 1, "width": 16, "heads": 2}
SENTENCES = {"kind": "grammar", "samples": 60, "length": 12}  # 48 samples for training
WORKLOADS: dict[str, Document] = {
    "bert_mini": {"dataset": SENTENCES | {"objective": "masked_token"}, "model": {"kind": "bert_mini", **SMALL}},
    "gpt_mini": {"dataset": SENTENCES, "model": {"kind": "gpt_mini", **SMALL}},
    "gpt_mini with dropout": {"dataset": SENTENCES, "model": {"kind": "gpt_mini", **SMALL, "dropout": 0.1}},
    "llama_mini_lora": {"dataset": SENTENCES | {"shift": 1}, "model": {"kind": "llama_mini_lora", "rank": 2}},
}
TRAINING = {"optimiser": {"kind": "adam", "rate": 0.003}, "batch": 12, "epochs": 2}
NONE: Document = {"kind": "none"}
STRATEGIES: dict[str, Document] = {
    "ring": {"kind": "all_reduce"},
    "bsp": {"kind": "parameter_server"},
    "asp": {"kind": "parameter_server", "servers": 2, "synchrony": {"kind": "asp"}},
    "local_sgd": {"kind": "local_sgd", "period": 2},
}

every_workload = pytest.mark.parametrize("workload", WORKLOADS)
every_strategy = pytest.mark.parametrize("strategy", STRATEGIES)


@every_workload
@every_strategy
def test_a_trial_lowers_the_perplexity(simulate: Simulate, workload: str, strategy: str) -> None:
    """Each model trains with each kind of strategy, and its quality is logged after each epoch."""
    trial = simulate(STRATEGIES[strategy], 2, **WORKLOADS[workload], **TRAINING)

    perplexities = [event["value"]["perplexity"] for event in trial.events("coordinator", "eval_metrics")]

    assert len(perplexities) >= 2
    assert perplexities[-1] < perplexities[0]


@pytest.mark.parametrize("workload", ["gpt_mini", "llama_mini_lora"])
@pytest.mark.parametrize("strategy", ["ring", "bsp"])
def test_n_workers_train_as_one_worker(simulate: Simulate, workload: str, strategy: str) -> None:
    """A loss is a mean over samples, so the division of a batch must not change the model."""
    work = WORKLOADS[workload] | TRAINING | {"precision": "fp64"}

    serial, parallel = (simulate(kind, workers, **work) for kind, workers in ((NONE, 1), (STRATEGIES[strategy], 3)))

    np.testing.assert_allclose(parallel.params, serial.params, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("workload", ["bert_mini", "gpt_mini with dropout"])
def test_random_masks_and_zeros_follow_the_seed(simulate: Simulate, workload: str) -> None:
    """A trial can be repeated bit by bit; another seed gives another training."""
    work = WORKLOADS[workload] | TRAINING
    digests = [
        simulate(STRATEGIES["ring"], 2, **work, seed=seed).value("coordinator", "params_sha256") for seed in (1, 1, 2)
    ]

    assert digests[0] == digests[1] != digests[2]


@pytest.mark.parametrize(("strategy", "sender"), [("ring", "worker-0"), ("bsp", "worker-0"), ("bsp", "server-0")])
def test_only_adapters_are_sent(simulate: Simulate, strategy: str, sender: str) -> None:
    """With two workers, every node sends the bytes of the adapters once per step and worker that it serves.

    The frozen base has 98,624 numbers, fourteen times as many as the adapters of rank 8 on the four projections of the
    attention.
    """
    work = WORKLOADS["llama_mini_lora"] | TRAINING | {"model": {"kind": "llama_mini_lora"}}
    adapter_bytes = 4 * 2 * 8 * (2 * (64 + 64) + 2 * (64 + 32))

    trial = simulate(STRATEGIES[strategy], 2, **work)

    receivers = 2 if sender == "server-0" else 1
    sent = trial.value(sender, "node_stop")["payload_bytes_sent"] / len(trial.steps(0)) / receivers
    assert trial.plan.vector_bytes == adapter_bytes == 28_672
    assert sent == pytest.approx(adapter_bytes, rel=0.01)
