"""TLS trust for S3: the job's file of certificates, and errors of a server whose certificate is not trusted."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any

from timeline.errors import ConfigError

_UNTRUSTED = "CERTIFICATE_VERIFY_FAILED"


def untrusted(error: BaseException) -> str | None:
    """The message for an error that a server's certificate caused; None for any other error."""
    if _UNTRUSTED not in str(error):
        return None
    return (
        f"the server's certificate is not trusted: {error}; name the file of its authority's certificate, "
        "storage: {client_kwargs: {verify: /path/ca.pem}}, on this machine and every executor's"
    )


def check_authorities(storage: Mapping[str, Any]) -> None:
    """Refuse an unreadable file of certificates: clients would fail and retry each request.

    Args:
        storage: s3fs's options.

    Raises:
        ConfigError: the file does not exist, or holds no certificate.
    """
    client = storage.get("client_kwargs")
    verify = client.get("verify") if isinstance(client, Mapping) else None
    if not isinstance(verify, str):
        return
    try:
        ssl.create_default_context(cafile=verify)
    except OSError as error:
        raise ConfigError(
            f"storage.client_kwargs.verify: {verify!r} cannot be read as certificates ({error.strerror}); a file of "
            "PEM certificates is allowed, at the same path on this machine and every executor's"
        ) from error
