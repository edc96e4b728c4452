"""The certificate authority of a run: made for it, used once, forgotten."""

import stat
from pathlib import Path

from cryptography import x509
from cryptography.x509.oid import ExtensionOID

from compose.runs.certificates import issue_certificates
from services.runtime.identity import CA_FILE, CERTIFICATE_FILE, KEY_FILE


def test_every_node_gets_a_certificate_under_its_own_name(tmp_path: Path) -> None:
    """TLS compares the DNS name, the coordinator the common name."""
    issue_certificates("run", ["a", "b"], tmp_path)

    authority = x509.load_pem_x509_certificate((tmp_path / "a" / CA_FILE).read_bytes())
    for name in ("a", "b"):
        certificate = x509.load_pem_x509_certificate((tmp_path / name / CERTIFICATE_FILE).read_bytes())
        certificate.verify_directly_issued_by(authority)
        names = certificate.extensions.get_extension_for_oid(ExtensionOID.SUBJECT_ALTERNATIVE_NAME).value
        assert isinstance(names, x509.SubjectAlternativeName)
        assert names.get_values_for_type(x509.DNSName) == [name]


def test_keys_are_readable_by_their_owner_alone(tmp_path: Path) -> None:
    """Other users of the host must not be able to join the run."""
    issue_certificates("run", ["a"], tmp_path / "secrets")

    for path in (tmp_path / "secrets" / "a", *(tmp_path / "secrets" / "a").iterdir()):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0


def test_the_authoritys_key_is_never_written(tmp_path: Path) -> None:
    """Nobody can add a node to the run afterwards."""
    issue_certificates("run", ["a"], tmp_path)

    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == sorted([CA_FILE, CERTIFICATE_FILE, KEY_FILE])
    keys = [path for path in tmp_path.rglob("*") if path.is_file() and b"PRIVATE" in path.read_bytes()]
    assert keys == [tmp_path / "a" / KEY_FILE]


def test_nodes_are_not_authorities(tmp_path: Path) -> None:
    """A node can't make another one."""
    issue_certificates("run", ["a"], tmp_path)

    certificate = x509.load_pem_x509_certificate((tmp_path / "a" / CERTIFICATE_FILE).read_bytes())
    assert not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
