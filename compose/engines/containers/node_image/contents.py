"""Software bill of materials of a node image, as SPDX 2.3 in JSON: all packages with versions, and hashes of wheels."""

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from hashlib import sha256
from importlib.metadata import version
from typing import Any

from compose.engines.containers.node_image.pinned_wheels import parse_pins
from compose.runs.host_program import run_host_program
from services.schema.errors import HostError

ROOT_ID = "SPDXRef-Image"
# Runs in the image, without network. dpkg has no hashes of its packages, but one list of file hashes for each.
READ_IMAGE_PROGRAM = """
import hashlib, importlib.metadata, json, pathlib
packages = []
for text in pathlib.Path("/var/lib/dpkg/status").read_text().split("\\n\\n"):
    fields = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line and not line.startswith(" "))
    if fields.get("Status") == "install ok installed":
        name, architecture = fields["Package"], fields["Architecture"]
        files = [pathlib.Path("/var/lib/dpkg/info", f"{each}.md5sums") for each in (name, f"{name}:{architecture}")]
        digests = [hashlib.sha256(file.read_bytes()).hexdigest() for file in files if file.exists()]
        packages.append({"name": name, "version": fields["Version"], "architecture": architecture, "files": digests})
import services
folder = pathlib.Path(services.__path__[0])
code = hashlib.sha256()
for path in sorted(folder.rglob("*.py")):
    code.update(f"{path.relative_to(folder)} {hashlib.sha256(path.read_bytes()).hexdigest()}\\n".encode())
wheels = "".join(path.read_text() for path in sorted(pathlib.Path("/opt/ensayo").glob("wheels-*.txt")))
installed = {each.name: each.version for each in importlib.metadata.distributions()}
print(json.dumps({"debian": packages, "wheels": wheels, "installed": installed, "services": code.hexdigest()}))
"""


def write_bill_of_materials(image_tag: str) -> str:
    """Return the bill of materials of a node image as JSON.

    Raises:
        HostError: the image can't be read, or has Python packages that do not come from a pinned wheel.
    """
    return json.dumps(describe_image(image_tag, read_image_contents(image_tag)), indent=1) + "\n"


def read_image_contents(image_tag: str) -> dict[str, Any]:
    """Return the packages in a node image, as `READ_IMAGE_PROGRAM` prints them, and the id of the image.

    Raises:
        HostError: the image can't be read.
    """
    command = ["docker", "run", "--rm", "--network=none", "--read-only", "--entrypoint=python", image_tag]
    printed = run_host_program([*command, "-c", READ_IMAGE_PROGRAM])
    inspected = run_host_program(["docker", "image", "inspect", "--format={{.Id}}", image_tag])
    if printed.returncode or inspected.returncode:
        raise HostError(f"{image_tag}: the image can't be read: {(printed.stderr or inspected.stderr).strip()}")
    return {"image_id": inspected.stdout.strip(), **json.loads(printed.stdout)}


def describe_image(image_tag: str, contents: Mapping[str, Any]) -> dict[str, Any]:
    """Return the SPDX document of an image, from its contents.

    Raises:
        HostError: the image has Python packages that do not come from a pinned wheel.
    """
    pins = list({pin.name: pin for pin in parse_pins(contents["wheels"])}.values())  # CuPy needs NumPy as well
    pinned_versions = {_normalise(pin.name): pin.version for pin in pins}
    unknown = sorted(
        f"{name} {installed}"
        for name, installed in contents["installed"].items()
        if pinned_versions.get(_normalise(name)) != installed
    )
    if unknown:
        raise HostError(f"{image_tag}: {', '.join(unknown)} do not come from a pinned wheel; build the image again")
    packages = [
        _package(ROOT_ID, image_tag, contents["image_id"].removeprefix("sha256:")[:12], "NOASSERTION"),
        _services_package(contents["services"]),
        *(_wheel_package(pin.name, pin.version, pin.sha256) for pin in pins),
        *map(_debian_package, contents["debian"]),
    ]
    content_digest = sha256(json.dumps(packages, sort_keys=True).encode()).hexdigest()
    return {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": image_tag,
        "documentNamespace": f"https://spdx.org/spdxdocs/ensayo-node-{content_digest}",
        "creationInfo": {
            "created": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "creators": [f"Tool: ensayo-{version('ensayo')}"],
        },
        "packages": packages,
        "relationships": list(_relationships(packages)),
    }


def _relationships(packages: list[dict[str, Any]]) -> Iterator[dict[str, str]]:
    yield _relationship("SPDXRef-DOCUMENT", "DESCRIBES", ROOT_ID)
    for package in packages[1:]:
        yield _relationship(ROOT_ID, "CONTAINS", package["SPDXID"])


def _relationship(element: str, kind: str, related: str) -> dict[str, str]:
    return {"spdxElementId": element, "relationshipType": kind, "relatedSpdxElement": related}


def _wheel_package(name: str, wheel_version: str, digest: str) -> dict[str, Any]:
    package = _package(f"SPDXRef-Python-{_identifier(name)}", name, wheel_version, "NOASSERTION")
    return package | {
        "checksums": [{"algorithm": "SHA256", "checksumValue": digest}],
        "externalRefs": [_package_url(f"pkg:pypi/{_normalise(name)}@{wheel_version}")],
    }


def _debian_package(package: Mapping[str, Any]) -> dict[str, Any]:
    name, architecture = package["name"], package["architecture"]
    record = _package(
        f"SPDXRef-Debian-{_identifier(f'{name}-{architecture}')}", name, package["version"], "NOASSERTION"
    )
    url = f"pkg:deb/debian/{name}@{package['version'].replace('+', '%2B').replace(':', '%3A')}?arch={architecture}"
    record["externalRefs"] = [_package_url(url)]
    for digest in package["files"]:
        record["comment"] = f"SHA-256 of the list of its files with their MD5 hashes, as dpkg keeps it: {digest}"
    return record


def _services_package(code_digest: str) -> dict[str, Any]:
    record = _package("SPDXRef-Ensayo-services", "ensayo", version("ensayo"), "Apache-2.0")
    return record | {
        "comment": f"the package services; SHA-256 of the list of its files with their hashes: {code_digest}"
    }


def _package(identifier: str, name: str, package_version: str, licence: str) -> dict[str, Any]:
    return {
        "SPDXID": identifier,
        "name": name,
        "versionInfo": package_version,
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": licence,
        "copyrightText": "NOASSERTION",
    }


def _package_url(url: str) -> dict[str, str]:
    return {"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": url}


def _identifier(name: str) -> str:
    """Return a name with only the characters that identifiers of SPDX may have."""
    return "".join(
        character if character.isalnum() or character in ".-" else f"-{ord(character)}-" for character in name
    )


def _normalise(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")
