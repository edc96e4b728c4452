"""Refused connections and corrupted messages in the report, and the protection of messages."""

import json
from collections.abc import Callable

import jsonschema
import pytest

from analysis.reading.run_folder import RunFolder, TrialFolder
from analysis.report.report import write_report
from services.runtime.data_protection import describe_data_protection

REJECTION = {"reason": "the certificate is of another run", "claimed_sender": "worker-0", "is_last": False}
CORRUPTION = {"number": 0, "receiver": "worker-1", "message_kind": "PUSH", "payload_bytes": 4000}
SECTION = "Refused and corrupted messages"


def append_lines(trial: TrialFolder, node: str, lines: list[str]) -> None:
    with trial.log_path(node).open("a") as file:
        file.write("\n".join(lines) + "\n")


@pytest.fixture
def ring_run(make_run: Callable[..., RunFolder]) -> RunFolder:
    return make_run(strategies=("ring",), workers=(2,), baseline=False)


def test_report_lists_what_was_refused_or_corrupted(
    ring_run: RunFolder, line: Callable[..., str], pytestconfig: pytest.Config
) -> None:
    """A rejection names its node, a corruption its receiver; only tags make a corruption known to the receiver."""
    (trial,) = ring_run.trial_folders
    for bits, is_detectable, time_s in (([7], False, 100.2), ([1, 9], True, 100.3)):
        value = CORRUPTION | {"flipped_bits": bits, "is_detectable": is_detectable}
        append_lines(trial, "worker-0", [line("message_corrupted", value, time_s, "worker-0")])
    append_lines(trial, "worker-1", [line("refused_connection", REJECTION, 100.1, "worker-1")])

    page = write_report(ring_run.path).read_text()

    summary = json.loads(ring_run.summary_path.read_text())
    problems = summary["trials"][0]["message_problems"]
    assert [(each["node"], each["sender"], each["kind"], each["is_detected"]) for each in problems] == [
        ("worker-1", "worker-0", "refused", True),
        ("worker-1", "worker-0", "corrupted", False),
        ("worker-1", "worker-0", "corrupted", True),
    ]
    assert [each["time_s"] for each in problems] == pytest.approx([0.1, 0.2, 0.3])
    assert [each["reason"] for each in problems] == [
        REJECTION["reason"],
        "1 bit flipped in a message PUSH of 4000 bytes",
        "2 bits flipped in a message PUSH of 4000 bytes",
    ]
    schema = json.loads((pytestconfig.rootpath / "analysis" / "results" / "summary.schema.json").read_text())
    jsonschema.validate(summary, schema)
    assert f"<h2>{SECTION}</h2>" in page
    assert page.count("<td>no</td></tr>") == 1


def test_report_lists_at_most_100_rows(ring_run: RunFolder, line: Callable[..., str]) -> None:
    """The others are in summary.json; a run of many attacked nodes has many rejections."""
    (trial,) = ring_run.trial_folders
    append_lines(trial, "worker-1", [line("refused_connection", REJECTION, 100.1, "worker-1")] * 103)

    page = write_report(ring_run.path).read_text()

    assert page.count(str(REJECTION["reason"])) == 100
    assert "3 more rows are in" in page


@pytest.mark.parametrize("protection", ["signed", "authenticated", "tls"])
def test_report_states_how_messages_were_protected(ring_run: RunFolder, protection: str) -> None:
    (trial,) = ring_run.trial_folders
    plan = json.loads(trial.plan_path.read_text())
    optimiser = {"optimiser": {"kind": "sgd", "rate": 0.1}}
    trial.plan_path.write_text(json.dumps(plan | optimiser | {"security": {"data": protection}}))

    page = write_report(ring_run.path).read_text()

    sentence = describe_data_protection(protection, plan["engine"])
    assert f"M{sentence[1:]}." in page
    assert json.loads(ring_run.summary_path.read_text())["trials"][0]["data_protection"] == protection
    assert SECTION not in page


def test_protection_in_virtual_time_is_described_apart() -> None:
    """There, no message crosses a network."""
    for protection in ("signed", "authenticated", "tls"):
        on_network, in_virtual_time = (describe_data_protection(protection, name) for name in ("docker", "simulated"))
        assert "virtual time" in in_virtual_time
        assert "virtual time" not in on_network
