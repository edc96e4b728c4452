"""The certificate authority of a run: it is made for one run, and its key is never stored."""

import stat
from pathlib import Path

from cryptography import x509
from cryptography.x509.oid import ExtensionOID

from compose.runs.certificates import issue_certificates
from services.runtime.identity import CA_FILE, CERTIFICATE_FILE, KEY_FILE


def test_every_node_gets_a_certificate_for_its_own_name(tmp_path: Path) -> None:
    """TLS compares the DNS name, the coordinator the common name."""
    issue_certificates("run", ["a", "b"], tmp_path)

    authority = x509.load_pem_x509_certificate((tmp_path / "a" / CA_FILE).read_bytes())
    for name in ("a", "b"):
        certificate = x509.load_pem_x509_certificate((tmp_path / name / CERTIFICATE_FILE).read_bytes())
        certificate.verify_directly_issued_by(authority)
        names = certificate.extensions.get_extension_for_oid(ExtensionOID.SUBJECT_ALTERNATIVE_NAME).value
        assert isinstance(names, x509.SubjectAlternativeName)
        assert names.get_values_for_type(x509.DNSName) == [name]


def test_only_the_owner_can_read_the_keys(tmp_path: Path) -> None:
    """Other users of the host must not be able to join the run."""
    issue_certificates("run", ["a"], tmp_path / "secrets")

    for path in (tmp_path / "secrets" / "a", *(tmp_path / "secrets" / "a").iterdir()):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0


def test_the_key_of_the_authority_is_never_written(tmp_path: Path) -> None:
    """Without this key, no process can add a node to the run later."""
    issue_certificates("run", ["a"], tmp_path)

    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == sorted([CA_FILE, CERTIFICATE_FILE, KEY_FILE])
    files_with_private_keys = [
        path for path in tmp_path.rglob("*") if path.is_file() and b"PRIVATE" in path.read_bytes()
    ]
    assert files_with_private_keys == [tmp_path / "a" / KEY_FILE]


def test_node_certificates_cannot_issue_certificates(tmp_path: Path) -> None:
    """A node must not be able to add another node to the run."""
    issue_certificates("run", ["a"], tmp_path)

    certificate = x509.load_pem_x509_certificate((tmp_path / "a" / CERTIFICATE_FILE).read_bytes())
    assert not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
