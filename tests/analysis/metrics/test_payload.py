"""A run with messages of a declared size: the report says so everywhere, and other tools get the declared size."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from analysis.exports.chakra import build_chakra_traces
from analysis.reading.run_folder import RunFolder
from analysis.reading.run_table import RunLogTables
from analysis.report.report import write_report

RunSimulated = Callable[..., RunLogTables]

RING = {"kind": "all_reduce", "collective": {"kind": "ring"}}
STATEMENT = (
    "messages as large as those of resnet-50 (25,557,032 parameters in bf16, 51.1 MB); the trained model has 1,210 "
    "parameters (4.84 kB)"
)


UNNAMED_STATEMENT = (
    "messages as large as those of a model (1,000,000 parameters in fp32, 4.00 MB); the trained model has 1,210 "
    "parameters (4.84 kB)"
)


@pytest.mark.parametrize(
    ("keys", "statements"),
    [
        ({}, []),
        ({"workload": {"epochs": 1, "payload": "resnet-50 x bf16"}}, [STATEMENT]),
        (
            {"scenario_overrides": {"sweep": {"workload.payload": ["resnet-50 x bf16", "1M x fp32"]}}},
            [STATEMENT, UNNAMED_STATEMENT],
        ),
    ],
    ids=["none", "one", "swept"],
)
def test_every_caption_states_the_declared_and_the_trained_model(
    run_simulated: RunSimulated, tmp_path: Path, keys: dict[str, Any], statements: list[str]
) -> None:
    """A reader of a single figure must not take the small model's messages for those of a large model, or reversely."""
    run_simulated({"ring": RING}, rate="10gbit", **{"workload": {"epochs": 1}} | keys)

    page = write_report(tmp_path)
    captions = [json.loads(path.read_text())["caption"] for path in (tmp_path / "figures").glob("*.json")]

    assert captions
    for caption in captions:
        assert caption.count("essages as large as") == len(statements)
        assert all(statement[1:] in caption for statement in statements)
    summary = json.loads(RunFolder(tmp_path).summary_path.read_text())
    assert summary["payloads"] == statements
    assert page.read_text().count("<span>messages as large as") == len(statements)


@pytest.mark.parametrize(
    ("strategy", "sizes"),
    [(RING, {51_114_064}), ({"kind": "parameter_server", "servers": 2}, {25_557_032})],
    ids=["ring", "two servers"],
)
def test_exported_messages_have_the_declared_size(
    run_simulated: RunSimulated, strategy: dict[str, object], sizes: set[int]
) -> None:
    """A simulator that replays the trace sends messages of the declared model."""
    run = run_simulated({"it": strategy}, rate="10gbit", workload={"epochs": 1, "payload": "resnet-50 x bf16"})

    nodes = [node for trace in build_chakra_traces(run.trials[0]) for node in trace.nodes]
    exported = {attribute.int64_val for node in nodes for attribute in node.attr if attribute.name == "comm_size"}

    assert exported == sizes
