"""The certificate authority of one run: made for it, used once, forgotten."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from services.runtime.identity import CA_FILE, CERTIFICATE_FILE, KEY_FILE

VALID = timedelta(days=7)  # longer than any run
SKEW = timedelta(minutes=5)  # a clock that is a little behind still accepts a new certificate


def issue(run: str, nodes: Iterable[str], folder: Path) -> None:
    """Make an authority and a certificate per node; lay them into `<folder>/<node>/`, readable by their owner alone.

    The authority's key is never written: nobody can add a node to the run afterwards.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name(f"ensayo {run}")
    authority = _certificate(subject, subject, key, key, authority=True)
    for node in nodes:
        own = ec.generate_private_key(ec.SECP256R1())
        certificate = _certificate(_name(node), subject, own, key, authority=False)
        home = folder / node
        home.mkdir(parents=True, mode=0o700)
        _write(home / CA_FILE, authority.public_bytes(Encoding.PEM))
        _write(home / CERTIFICATE_FILE, certificate.public_bytes(Encoding.PEM))
        _write(home / KEY_FILE, own.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _certificate(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    signer: ec.EllipticCurvePrivateKey,
    *,
    authority: bool,
) -> x509.Certificate:
    """Names of nodes are also their DNS names, which is what TLS compares."""
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SKEW)
        .not_valid_after(now + VALID)
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
    )
    if not authority:
        common_name = str(subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(common_name)]), critical=False)
    return builder.sign(signer, SHA256())


def _write(path: Path, content: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(content)
