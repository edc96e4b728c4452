"""The doctor says what this host has, and of what it lacks: what that costs and how to get it."""

import json

import pytest

from compose.calibration.capacity import ASSUMED_COSTS, HostCapacity, HostFingerprint
from compose.host import doctor
from compose.host.kernel_features import KERNEL_FEATURES
from compose.shaping.mechanisms import FEATURE_TEST_COMMANDS


def test_every_missing_thing_says_what_it_costs_and_how_to_get_it() -> None:
    """A bare "no" helps nobody."""
    found = list(doctor.check_host())

    for finding in found:
        assert finding.found
        assert finding.ok or (finding.costs and finding.remedy)
    topics = {finding.topic for finding in found}
    assert {"python", "cores", "timers", "docker", "compose", "cgroup", "limits", "gpu", "capacity"} <= topics


def test_programs_read_the_same_findings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "check_host", lambda: iter([doctor.check_python_version()]))

    (finding,) = json.loads(doctor.host_findings_as_json())

    assert finding["topic"] == "python"
    assert finding["ok"] is True


def test_a_host_that_wakes_threads_late_is_told_what_that_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.WakeUpDelayMeter, "stop", lambda _: {"p50": 0.1, "p99": 1.2, "max": 9.0})

    finding = doctor.check_timer_lateness()

    assert not finding.ok
    assert "deadlines" in finding.costs


@pytest.mark.parametrize(("told", "ok"), [({}, False), ({"SwapLimit": True}, True)])
def test_an_engine_that_does_not_limit_swap_is_told(
    monkeypatch: pytest.MonkeyPatch, told: dict[str, bool], ok: bool
) -> None:
    info = {"CpuCfsQuota": True, "MemoryLimit": True, "SwapLimit": False} | told
    monkeypatch.setattr(doctor, "command_output", lambda *_: json.dumps(info))

    assert doctor.check_container_limits().ok is ok


def test_what_a_kernel_lacks_names_its_cost_and_its_module(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host without netem is the common case, and it has another rung."""
    monkeypatch.setattr(doctor.DockerEngine, "find_kernel_features", lambda *_: set(FEATURE_TEST_COMMANDS) - {"netem"})

    (missing,) = (finding for finding in doctor.check_kernel_features() if not finding.ok)

    assert missing.topic == "netem"
    assert "NFQUEUE" in missing.costs
    assert "sch_netem" in missing.remedy


def test_the_doctor_has_words_for_exactly_what_runs_try() -> None:
    """Two lists of commands would answer differently."""
    assert [feature.name for feature in KERNEL_FEATURES] == list(FEATURE_TEST_COMMANDS)


def test_without_an_engine_nothing_of_the_kernel_is_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the host's own tools can do is not what helpers can."""
    monkeypatch.setattr("compose.engines.containers.engine.docker.from_env", _absent)

    (finding,) = doctor.check_kernel_features()

    assert (finding.ok, finding.found) == (False, "not tested")


@pytest.mark.parametrize(
    ("calibrated", "told"), [("2026-01-01", "measured by `ensayo calibrate` on 2026-01-01"), ("", "not measured")]
)
def test_the_capacity_of_veth_pairs_says_where_it_comes_from(
    monkeypatch: pytest.MonkeyPatch, calibrated: str, told: str
) -> None:
    here = HostFingerprint(cpu="a", cores=2, kernel="b", engine="c")
    known = HostCapacity(engine="docker", fingerprint=here, calibrated=calibrated, total_bps=8e9, **ASSUMED_COSTS)
    monkeypatch.setattr(doctor, "known_capacity", lambda _: known)

    finding = doctor.check_calibration()

    assert told in finding.found
    assert "2.5 Gbit/s" in finding.found
    assert finding.ok is bool(calibrated)


def test_an_absent_engine_is_a_finding_and_not_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hosts without Docker are why there is a doctor."""
    monkeypatch.setattr(doctor.docker, "from_env", _absent)

    finding = doctor.check_docker_engine()

    assert not finding.ok
    assert "local processes" in str(finding)


@pytest.mark.docker
def test_every_feature_is_tried_in_a_container(docker_engine: object) -> None:
    """Where containers run, nothing about the kernel has to be guessed, whoever asks."""
    found = list(doctor.check_kernel_features())

    assert [finding.topic for finding in found] == list(FEATURE_TEST_COMMANDS)
    assert found[0].ok  # whoever runs these tests shapes links


def _absent(**_options: object) -> None:
    raise doctor.DockerException("Connection refused")
