"""TLS between nodes: both sides show the run's certificates, and are who they are called."""

import os
import ssl

from services.runtime.identity import Identity


def client(identity: Identity) -> ssl.SSLContext:
    """For streams to others, whose certificate must carry the name that they are called by."""
    context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cadata=identity.authority.decode())
    _own(context, identity)
    return context


def server(identity: Identity) -> ssl.SSLContext:
    """For streams from others, who must have a certificate of this run."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=identity.authority.decode())
    context.verify_mode = ssl.CERT_REQUIRED
    _own(context, identity)
    return context


def _own(context: ssl.SSLContext, identity: Identity) -> None:
    """The ssl module reads certificates from files alone; this one is never on a disk."""
    file = os.memfd_create("identity")
    try:
        os.write(file, identity.certificate + identity.key)
        context.load_cert_chain(f"/proc/self/fd/{file}")
    finally:
        os.close(file)
