"""The doctor says what this host has, and of what it lacks: what that costs and how to get it."""

import json

import pytest

from compose import doctor


def test_every_missing_thing_says_what_it_costs_and_how_to_get_it() -> None:
    """A bare "no" helps nobody."""
    found = list(doctor.findings())

    for finding in found:
        assert finding.found
        assert finding.ok or (finding.costs and finding.remedy)
    topics = {finding.topic for finding in found}
    assert {"python", "cores", "timers", "docker", "compose", "cgroup", "limits", "gpu", "capacity"} <= topics


def test_programs_read_the_same_findings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "findings", lambda: iter([doctor.python()]))

    (finding,) = json.loads(doctor.as_json())

    assert finding["topic"] == "python"
    assert finding["ok"] is True


def test_a_host_that_wakes_threads_late_is_told_what_that_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.Canary, "stop", lambda _: {"p50": 0.1, "p99": 1.2, "max": 9.0})

    finding = doctor.timers()

    assert not finding.ok
    assert "deadlines" in finding.costs


@pytest.mark.parametrize(("told", "ok"), [({}, False), ({"SwapLimit": True}, True)])
def test_an_engine_that_does_not_limit_swap_is_told(
    monkeypatch: pytest.MonkeyPatch, told: dict[str, bool], ok: bool
) -> None:
    info = {"CpuCfsQuota": True, "MemoryLimit": True, "SwapLimit": False} | told
    monkeypatch.setattr(doctor, "said", lambda *_: json.dumps(info))

    assert doctor.limits().ok is ok


def test_what_a_kernel_lacks_names_its_cost_and_its_module(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host without netem is the common case, and it has another rung."""
    monkeypatch.setattr(doctor, "scratch", lambda: lambda command: "netem" not in command)

    (missing,) = (finding for finding in doctor.rungs() if not finding.ok)

    assert missing.topic == "netem"
    assert "NFQUEUE" in missing.costs
    assert "sch_netem" in missing.remedy


def test_an_absent_engine_is_a_finding_and_not_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hosts without Docker are why there is a doctor."""
    monkeypatch.setattr(doctor.docker, "from_env", _absent)

    finding = doctor.engine()

    assert not finding.ok
    assert "local processes" in str(finding)


@pytest.mark.docker
def test_every_feature_is_tried_in_a_container(docker_engine: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where containers run, nothing about the kernel has to be guessed, whoever asks."""
    monkeypatch.setattr("compose.features.os.geteuid", lambda: 1000)

    found = list(doctor.rungs())

    assert [finding.topic for finding in found] == [feature.name for feature in doctor.FEATURES]
    assert found[0].ok  # whoever runs these tests shapes links


def _absent(**_options: object) -> None:
    raise doctor.DockerException("Connection refused")
