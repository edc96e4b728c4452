"""The doctor reports the host's features; for a missing feature, what its absence costs and how to get it."""

import json

import pytest

from compose.calibration.capacity import ASSUMED_COSTS, HostCapacity, HostFingerprint
from compose.host import doctor
from compose.host.kernel_features import KERNEL_FEATURES
from compose.shaping.mechanisms import FEATURE_TEST_COMMANDS
from services.schema.errors import HostError


def test_every_missing_feature_names_its_cost_and_remedy() -> None:
    """A bare "no" helps no user."""
    findings = list(doctor.check_host())

    for finding in findings:
        assert finding.found
        assert finding.ok or (finding.costs and finding.remedy)
    topics = {finding.topic for finding in findings}
    assert {"python", "cores", "timers", "docker", "compose", "cgroup", "limits", "gpu", "capacity"} <= topics


def test_findings_are_also_available_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "check_host", lambda: iter([doctor.check_python_version()]))

    (finding,) = json.loads(doctor.host_checks_as_json())

    assert finding["topic"] == "python"
    assert finding["ok"] is True


def test_the_doctor_reports_the_cost_of_late_wake_ups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.WakeUpDelayMeter, "stop", lambda _: {"p50": 0.1, "p99": 1.2, "max": 9.0})

    finding = doctor.check_wake_up_delay()

    assert not finding.ok
    assert "late" in finding.costs


@pytest.mark.parametrize(("reported_limits", "ok"), [({}, False), ({"SwapLimit": True}, True)])
def test_the_doctor_reports_an_engine_that_does_not_limit_swap(
    monkeypatch: pytest.MonkeyPatch, reported_limits: dict[str, bool], ok: bool
) -> None:
    info = {"CpuCfsQuota": True, "MemoryLimit": True, "SwapLimit": False} | reported_limits
    monkeypatch.setattr(doctor, "read_command_output", lambda *_: json.dumps(info))

    assert doctor.check_cpu_and_memory_limits().ok is ok


def test_a_missing_kernel_feature_names_its_cost_and_its_module(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host without netem is the common case; it uses another mechanism."""
    monkeypatch.setattr(doctor.DockerEngine, "find_kernel_features", lambda *_: set(FEATURE_TEST_COMMANDS) - {"netem"})

    (missing_feature,) = (finding for finding in doctor.check_kernel_features() if not finding.ok)

    assert missing_feature.topic == "netem"
    assert "NFQUEUE" in missing_feature.costs
    assert "sch_netem" in missing_feature.remedy


def test_the_doctor_describes_exactly_the_features_that_runs_test() -> None:
    """Two lists of commands would give different results."""
    assert [feature.name for feature in KERNEL_FEATURES] == list(FEATURE_TEST_COMMANDS)


def test_kernel_features_are_not_guessed_without_an_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Features of the host's own tools are not those of helper containers."""
    monkeypatch.setattr("compose.engines.containers.engine.docker.from_env", _raise_connection_refused)

    (finding,) = doctor.check_kernel_features()

    assert (finding.ok, finding.found) == (False, "not tested")


def test_a_missing_node_image_is_a_finding_and_not_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Users run the doctor before their first run, which builds the image."""
    monkeypatch.setattr(doctor.DockerEngine, "find_kernel_features", _raise_missing_image)

    (finding,) = doctor.check_kernel_features()

    assert (finding.ok, finding.found) == (False, "not tested")
    assert "`ensayo images`" in finding.remedy


@pytest.mark.parametrize(
    ("calibrated", "source"), [("2026-01-01", "measured by `ensayo calibrate` on 2026-01-01"), ("", "not measured")]
)
def test_the_capacity_of_veth_pairs_names_its_source(
    monkeypatch: pytest.MonkeyPatch, calibrated: str, source: str
) -> None:
    fingerprint = HostFingerprint(cpu="a", cores=2, kernel="b", engine="c")
    capacity = HostCapacity(
        engine="docker", fingerprint=fingerprint, calibrated=calibrated, total_bps=8e9, **ASSUMED_COSTS
    )
    monkeypatch.setattr(doctor, "known_capacity", lambda _: capacity)

    finding = doctor.check_link_calibration()

    assert source in finding.found
    assert "2.5 Gbit/s" in finding.found
    assert finding.ok is bool(calibrated)


def test_a_missing_docker_engine_is_a_finding_and_not_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Users run the doctor on hosts without Docker."""
    monkeypatch.setattr(doctor.docker, "from_env", _raise_connection_refused)

    finding = doctor.check_docker_engine()

    assert not finding.ok
    assert "local processes" in str(finding)


@pytest.mark.docker
def test_every_kernel_feature_is_tested_in_a_container(docker_engine: object) -> None:
    """Where containers run, no kernel feature has to be guessed, whichever user runs the doctor."""
    findings = list(doctor.check_kernel_features())

    assert [finding.topic for finding in findings] == list(FEATURE_TEST_COMMANDS)
    assert findings[0].ok  # a host that runs these tests can shape links


def _raise_connection_refused(**_options: object) -> None:
    raise doctor.DockerException("Connection refused")


def _raise_missing_image(*_arguments: object) -> None:
    raise HostError("no container of image ensayo-node:cpu could be started")
