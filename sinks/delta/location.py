"""A table's place and the job's storage options, translated for delta-rs.

The object store takes fsspec's options, delta-rs takes the names of its own object store crate;
both must mean the same place with the same rights, and the same trust in its certificate.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from timeline.errors import ConfigError
from timeline.redact import without_credentials
from timeline.stores.opening import absolute, s3_root

_S3_OPTIONS = {
    "key": "AWS_ACCESS_KEY_ID",
    "secret": "AWS_SECRET_ACCESS_KEY",
    "token": "AWS_SESSION_TOKEN",
    "endpoint_url": "AWS_ENDPOINT_URL",
    "region_name": "AWS_REGION",
    "aws_access_key_id": "AWS_ACCESS_KEY_ID",
    "aws_secret_access_key": "AWS_SECRET_ACCESS_KEY",
    "aws_session_token": "AWS_SESSION_TOKEN",
    "profile": "AWS_PROFILE",
}

_SCHEMES = ("file", "local", "s3", "s3a")
_TRUST = "SSL_CERT_FILE"
_trust_lock = threading.Lock()


def delta_location(path: str) -> str:
    """The table's place as delta-rs takes it: an absolute local path, or an ``s3://`` URL.

    Raises:
        ConfigError: delta-rs cannot write there.
    """
    scheme, rest = path.split("://", 1) if "://" in path else ("file", path)
    # delta-rs 1.6 decodes a percent sign in a table's own path twice and opens another folder.
    if "%" in rest or "\\" in rest:
        raise ConfigError(
            f"delta target {without_credentials(path)!r}: a table's path cannot hold '%' or '\\'; choose another"
        )
    # delta-rs parses an S3 path as a URL: query, fragment and resolved segments are no part of a key.
    if scheme in ("s3", "s3a") and ("#" in rest or "?" in rest):
        raise ConfigError(
            f"delta target {without_credentials(path)!r}: a table's path on S3 cannot hold '#' or '?'; choose another"
        )
    match scheme:
        case "file" | "local":
            return absolute(rest)
        case "s3" | "s3a":
            return s3_root(rest)
        case _:
            raise ConfigError(f"delta target {without_credentials(path)!r}: allowed are local paths and s3:// URLs")


def is_delta_place(path: str) -> bool:
    """Whether delta-rs writes to paths of this scheme: a local path or S3."""
    return "://" not in path or path.partition("://")[0] in _SCHEMES


def delta_storage_options(location: str, storage: Mapping[str, Any]) -> dict[str, str]:
    """The job's fsspec options for S3 as delta-rs takes them; none for local files.

    Missing options come from the environment, which both libraries read. The result holds secrets: keep it out of
    messages.
    """
    if not location.startswith("s3://"):
        return {}
    given = {**storage, **(storage.get("client_kwargs") or {})}
    options = {name: str(given[key]) for key, name in _S3_OPTIONS.items() if given.get(key) is not None}
    if urlsplit(options.get("AWS_ENDPOINT_URL", "")).scheme == "http":
        options["AWS_ALLOW_HTTP"] = "true"
    if given.get("anon"):
        options["AWS_SKIP_SIGNATURE"] = "true"
    if given.get("verify") is False:
        options["AWS_ALLOW_INVALID_CERTIFICATES"] = "true"
    # Without this option delta-rs refuses S3, or renames: two writers could both win a version.
    options["aws_conditional_put"] = "etag"
    return options


def trusted_authorities(location: str, storage: Mapping[str, Any]) -> str | None:
    """The certificate file that s3fs trusts at a location; None for the system's certificates."""
    if not location.startswith("s3://"):
        return None
    verify = (storage.get("client_kwargs") or {}).get("verify")
    # botocore's own variable, which delta-rs does not know.
    found = os.environ.get("AWS_CA_BUNDLE") if verify is None else verify
    return found if isinstance(found, str) and found else None


@contextlib.contextmanager
def trusting(authorities: str | None) -> Iterator[None]:
    """Let clients that delta-rs creates in this context trust these authorities only; a client keeps its trust.

    delta-rs 1.6 has no option for it: it reads the environment when it creates a client. So the process's environment
    is changed inside this context only, and processes and clients created later are not affected.

    Args:
        authorities: a file of PEM certificates; None leaves everything to the environment.
    """
    if authorities is None:
        yield
        return
    with _trust_lock:
        before = os.environ.get(_TRUST)
        os.environ[_TRUST] = authorities
        try:
            yield
        finally:
            if before is None:
                del os.environ[_TRUST]
            else:
                os.environ[_TRUST] = before
