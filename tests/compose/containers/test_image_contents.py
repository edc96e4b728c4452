"""A node image has only packages whose hashes were written when they were downloaded, and lists them all."""

from pathlib import Path
from typing import Any

import pytest

from compose.engines.containers.node_image import packages
from compose.engines.containers.node_image.contents import describe_image
from compose.engines.containers.node_image.packages import fetch_wheels
from compose.engines.containers.node_image.pinned_wheels import (
    PINS_FILE,
    are_wheels_as_pinned,
    parse_pins,
    write_pins,
)
from services.schema.errors import HostError

WHEELS = ("numpy-2.4.6-cp311-cp311-manylinux_2_28_x86_64.whl", "typing_extensions-4.16.0-py3-none-any.whl")


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    """A folder of wheels, among them that of the installer."""
    for name in (*WHEELS, "pip-26.3-py3-none-any.whl"):
        (tmp_path / name).write_bytes(name.encode())
    write_pins(tmp_path)
    return tmp_path


def test_pins_are_a_requirements_file_with_the_hash_of_each_wheel(wheels: Path) -> None:
    """pip installs with --require-hashes; it runs from its own wheel and is not installed."""
    first, second = parse_pins((wheels / PINS_FILE).read_text())

    assert (first.name, first.version, second.name) == ("numpy", "2.4.6", "typing-extensions")
    assert str(first).startswith("numpy==2.4.6 --hash=sha256:")
    assert len(first.sha256) == 64
    assert are_wheels_as_pinned(wheels)


@pytest.mark.parametrize("change", ["altered", "added", "removed", "no pins"])
def test_wheels_that_differ_from_their_pins_are_downloaded_again(
    wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """A damaged or replaced wheel in the cache must not get into an image."""

    def download(_requirements: list[str], folder: Path, *_options: str) -> str:
        folder.mkdir()
        (folder / WHEELS[0]).write_bytes(b"original")
        return ""

    monkeypatch.setattr(packages, "_download", download)
    cache = tmp_path / "cache"
    cache.mkdir()
    folder = fetch_wheels("cpu", cache, print)
    assert fetch_wheels("cpu", cache, lambda _: pytest.fail("not downloaded twice")) == folder
    if change == "altered":
        (folder / WHEELS[0]).write_bytes(b"other")
    elif change == "added":
        (folder / WHEELS[1]).write_bytes(b"other")
    elif change == "removed":
        (folder / WHEELS[0]).unlink()
    else:
        (folder / PINS_FILE).unlink()

    assert not are_wheels_as_pinned(folder)
    assert fetch_wheels("cpu", cache, print) == folder
    assert [path.read_bytes() for path in folder.glob("*.whl")] == [b"original"]


def image_contents(wheels: Path, **installed: str) -> dict[str, Any]:
    debian = [{"name": "libstdc++6", "version": "12.2.0-14", "architecture": "amd64", "files": ["ab" * 32]}]
    pins = (wheels / PINS_FILE).read_text()
    return {"image_id": "sha256:1234", "wheels": pins, "installed": installed, "debian": debian, "services": "cd" * 32}


def test_the_bill_of_materials_has_all_packages_with_versions_and_hashes(wheels: Path) -> None:
    """CuPy's wheels include NumPy again, which is one package."""
    contents = image_contents(wheels, numpy="2.4.6", typing_extensions="4.16.0")
    contents["wheels"] *= 2

    document = describe_image("ensayo-node:1234", contents)

    by_name = {package["name"]: package for package in document["packages"]}
    assert list(by_name) == ["ensayo-node:1234", "ensayo", "numpy", "typing-extensions", "libstdc++6"]
    assert by_name["numpy"]["checksums"][0]["algorithm"] == "SHA256"
    assert by_name["libstdc++6"]["SPDXID"] == "SPDXRef-Debian-libstdc-43--43-6-amd64"
    assert len(document["relationships"]) == len({package["SPDXID"] for package in document["packages"]}) == 5


@pytest.mark.parametrize("installed", [{"numpy": "2.4.5"}, {"numpy": "2.4.6", "leftpad": "1.0"}])
def test_a_package_that_no_pinned_wheel_explains_is_an_error(wheels: Path, installed: dict[str, str]) -> None:
    """A bill of materials that leaves out a package is wrong."""
    with pytest.raises(HostError, match=r": (numpy 2\.4\.5|leftpad 1\.0) do not come from a pinned wheel"):
        describe_image("ensayo-node:1234", image_contents(wheels, **installed))
