"""TLS contexts for streams between nodes.

Both ends of a stream present a certificate of the training run.
"""

import os
import ssl

from services.runtime.identity import NodeIdentity


def make_client_tls_context(identity: NodeIdentity) -> ssl.SSLContext:
    """Return the TLS context of outgoing streams.

    The receiver's certificate must contain the receiver's name.
    """
    context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cadata=identity.ca_certificate.decode())
    _load_own_certificate(context, identity)
    return context


def make_server_tls_context(identity: NodeIdentity) -> ssl.SSLContext:
    """Return the TLS context of incoming streams.

    The sender must have a certificate of the training run.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=identity.ca_certificate.decode())
    context.verify_mode = ssl.CERT_REQUIRED
    _load_own_certificate(context, identity)
    return context


def _load_own_certificate(tls_context: ssl.SSLContext, identity: NodeIdentity) -> None:
    """Load the node's certificate and key into a TLS context.

    They pass through a file in memory, because the ssl module reads only files.
    """
    file = os.memfd_create("identity")
    try:
        os.write(file, identity.certificate + identity.private_key)
        tls_context.load_cert_chain(f"/proc/self/fd/{file}")
    finally:
        os.close(file)
