"""A certificate authority for tests, with certificates for one server and one client on loopback."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from tests.real.processes import HOST


@dataclass(frozen=True)
class Certificates:
    """PEM files.

    Attributes:
        authority: the certificate that a client has to trust.
        server: key and certificate of a server on loopback, in one file.
        client: key and certificate of a client, in one file.
    """

    authority: Path
    server: Path
    client: Path


def issue(folder: Path) -> Certificates:
    """Certificates of a new authority, in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    authority = trustme.CA()
    issued = Certificates(folder / "authority.pem", folder / "server.pem", folder / "client.pem")
    authority.cert_pem.write_to_path(str(issued.authority))
    _write(issued.server, authority.issue_cert(HOST, "localhost"))
    _write(issued.client, authority.issue_cert("client@tideline.test"))
    return issued


def _write(path: Path, identity: trustme.LeafCert) -> None:
    # Java reads PKCS 8 only, which is not the form that trustme writes.
    key = load_pem_private_key(identity.private_key_pem.bytes(), password=None)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    pem += b"".join(blob.bytes() for blob in identity.cert_chain_pems)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(pem)
