"""Whole trials in virtual time with models of tokens on a text of the user."""

import json
from pathlib import Path
from typing import Any

import pytest
from data_files import scenario_of

from compose.scenario_files.load import load_scenario
from services.cluster.addresses import DummyAddresses
from services.node.simulate import simulate_trial
from services.plan import make_plan
from services.runtime.run_log import LOG_LINE_PREFIX

Document = dict[str, Any]

QUESTION = "to be, or not to be: that is the question.\n"
SENTENCE = "the dog sees the cat and the cat sees a bird .\n"
WORKLOADS: dict[str, Document] = {
    "gpt_mini": {
        "dataset": {"objective": "next_token", "context": 16},
        "model": {"kind": "gpt_mini", "layers": 1, "width": 16, "heads": 2},
        "optimiser": {"kind": "adam", "rate": 0.01},
        "batch": 12,
        "epochs": 8,
    },
    "bert_mini": {
        "dataset": {"objective": "masked_token", "context": 12, "level": "word"},
        "model": {"kind": "bert_mini", "layers": 2, "width": 32, "heads": 2},
        "optimiser": {"kind": "adam", "rate": 0.005},
        "batch": 8,
        "epochs": 5,
    },
}
TEXTS = {"gpt_mini": QUESTION, "bert_mini": SENTENCE}
STRATEGIES: dict[str, Document] = {"ring": {"kind": "all_reduce"}, "bsp": {"kind": "parameter_server"}}


@pytest.mark.parametrize("model", WORKLOADS)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_model_of_tokens_learns_a_repeated_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str, strategy: str
) -> None:
    """A perfect model has a perplexity near 1; the frequencies of the tokens alone leave at least 6."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "text.txt").write_text(TEXTS[model] * 90)
    keys = {"kind": "text", "path": str(tmp_path / "text.txt")} | WORKLOADS[model]["dataset"]
    workload = {key: value for key, value in WORKLOADS[model].items() if key != "dataset"}

    perplexities = _train(scenario_of(keys, workload=workload, strategies={strategy: STRATEGIES[strategy]}))

    assert perplexities[-1] < 1.3


def _train(document: Document) -> list[float]:
    """Return the perplexity of the test text after each epoch."""
    (trial,) = load_scenario(document).trials()
    lines: list[str] = []
    plan = make_plan(trial, "run", "simulated", DummyAddresses())
    simulate_trial(plan, lambda node: lines.append if node == "coordinator" else lambda _: None)
    events = [json.loads(line.removeprefix(LOG_LINE_PREFIX)) for line in lines]
    return [event["value"]["perplexity"] for event in events if event["key"] == "eval_metrics"]
