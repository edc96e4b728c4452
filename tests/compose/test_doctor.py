"""The doctor says what this host has, and of what it lacks: what that costs and how to get it."""

import pytest

from compose import doctor


def test_every_missing_thing_says_what_it_costs_and_how_to_get_it() -> None:
    """A bare "no" helps nobody."""
    found = list(doctor.findings())

    for finding in found:
        assert finding.found
        assert finding.ok or (finding.costs and finding.remedy)
    assert {"python", "cores", "docker", "compose", "cgroup", "gpu"} <= {finding.topic for finding in found}


def test_an_absent_engine_is_a_finding_and_not_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hosts without Docker are why there is a doctor."""
    monkeypatch.setattr(doctor.docker, "from_env", _absent)

    finding = doctor.engine()

    assert not finding.ok
    assert "local processes" in str(finding)


@pytest.mark.docker
def test_every_rung_is_tried_in_a_container(docker_engine: object) -> None:
    """Where containers run, nothing about the kernel has to be guessed."""
    assert [finding.topic for finding in doctor.rungs()] == list(doctor.RUNGS)


def _absent(**_options: object) -> None:
    raise doctor.DockerException("Connection refused")
