"""Whether S3 is trusted: the file of certificates that a job names, and how a refusal of the server's shows."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any

from timeline.errors import ConfigError

_UNTRUSTED = "CERTIFICATE_VERIFY_FAILED"


def untrusted(error: BaseException) -> str | None:
    """What to tell the user of an error that a server's certificate caused; None of any other error."""
    if _UNTRUSTED not in str(error):
        return None
    return (
        f"the server's certificate is not trusted: {error}; name the file of its authority's certificate, "
        "storage: {client_kwargs: {verify: /path/ca.pem}}, on this machine and every executor's"
    )


def check_authorities(storage: Mapping[str, Any]) -> None:
    """Refuse a file of certificates that cannot be read: clients would fail each request, and try it again.

    Args:
        storage: s3fs's options.

    Raises:
        ConfigError: it is not there, or holds no certificate.
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
