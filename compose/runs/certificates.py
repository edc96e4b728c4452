"""TLS certificates of the nodes of one run.

A temporary certificate authority, whose key is never stored, issues the certificates.
"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from services.runtime.identity import CA_FILE, CERTIFICATE_FILE, KEY_FILE

VALIDITY = timedelta(days=7)  # longer than any run
CLOCK_SKEW = timedelta(minutes=5)  # a node whose clock is slightly behind still accepts a new certificate


def issue_certificates(run_name: str, node_names: Iterable[str], folder: Path) -> None:
    """Create a certificate authority and one certificate per node.

    They are written to `<folder>/<node>/`. Only the owner can read the files. The authority's key is never written, so
    no node can be added to the run later.
    """
    authority_key = ec.generate_private_key(ec.SECP256R1())
    issuer = _x509_name(f"ensayo {run_name}")
    authority = _sign_certificate(issuer, issuer, authority_key, authority_key, is_authority=True)
    for node_name in node_names:
        node_key = ec.generate_private_key(ec.SECP256R1())
        certificate = _sign_certificate(_x509_name(node_name), issuer, node_key, authority_key, is_authority=False)
        node_folder = folder / node_name
        node_folder.mkdir(parents=True, mode=0o700)
        _write_private_file(node_folder / CA_FILE, authority.public_bytes(Encoding.PEM))
        _write_private_file(node_folder / CERTIFICATE_FILE, certificate.public_bytes(Encoding.PEM))
        key_bytes = node_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        _write_private_file(node_folder / KEY_FILE, key_bytes)


def _x509_name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _sign_certificate(
    subject: x509.Name,
    issuer: x509.Name,
    subject_key: ec.EllipticCurvePrivateKey,
    issuer_key: ec.EllipticCurvePrivateKey,
    *,
    is_authority: bool,
) -> x509.Certificate:
    """Return a signed certificate.

    The DNS name of a node is the node name, since TLS compares DNS names.
    """
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(subject_key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + VALIDITY)
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
    )
    if not is_authority:
        common_name = str(subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(common_name)]), critical=False)
    return builder.sign(issuer_key, SHA256())


def _write_private_file(path: Path, file_bytes: bytes) -> None:
    """Write a file that only its owner can read."""
    path.touch(mode=0o600)
    path.write_bytes(file_bytes)
