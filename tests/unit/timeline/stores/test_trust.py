"""An untrusted server gets no retry; delta-rs trusts the same authorities as s3fs, for the time of a call only."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sinks.delta.location import trusted_authorities, trusting
from timeline.errors import ConfigError, UntrustedStoreError
from timeline.redact import without_secrets
from timeline.stores.base import Retry
from timeline.stores.trust import check_authorities


def test_server_that_is_not_trusted_is_asked_once() -> None:
    calls: list[int] = []

    def refused() -> None:
        calls.append(1)
        raise UntrustedStoreError("not trusted")

    with pytest.raises(UntrustedStoreError):
        Retry(sleep=lambda _: None).call(refused)
    assert len(calls) == 1


@pytest.mark.parametrize("before", [None, "/system.pem"])
def test_trust_of_a_moment_leaves_the_environment_alone(monkeypatch: pytest.MonkeyPatch, before: str | None) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    if before is not None:
        monkeypatch.setenv("SSL_CERT_FILE", before)
    with pytest.raises(RuntimeError), trusting("/private.pem"):
        assert os.environ["SSL_CERT_FILE"] == "/private.pem"
        raise RuntimeError
    with trusting(None):
        assert os.environ.get("SSL_CERT_FILE") == before
    assert os.environ.get("SSL_CERT_FILE") == before


def test_delta_trusts_whom_s3fs_trusts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_CA_BUNDLE", "/bundle.pem")
    assert trusted_authorities("s3://b/t", {"client_kwargs": {"verify": "/ca.pem"}}) == "/ca.pem"
    assert trusted_authorities("s3://b/t", {}) == "/bundle.pem"
    assert trusted_authorities("s3://b/t", {"client_kwargs": {"verify": False}}) is None
    assert trusted_authorities("/local", {"client_kwargs": {"verify": "/ca.pem"}}) is None


def test_file_without_certificates_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("nothing")
    for name in ("ca.pem", "missing.pem"):
        with pytest.raises(ConfigError, match=f"{name}.*cannot be read as certificates"):
            check_authorities({"client_kwargs": {"verify": str(tmp_path / name)}})
    check_authorities({"client_kwargs": {"verify": True}})


def test_secret_that_a_server_repeats_is_cut_out_in_any_form() -> None:
    options = {"key": 'a"b', "client_kwargs": {"aws_secret_access_key": 'a"b c', "region_name": "eu"}}
    assert without_secrets('Credential=a\\"b/eu, a"b c', options) == "Credential=…/eu, …"


@pytest.mark.parametrize(
    "name", ["secret", "passwd", "private", "sas_credential", "account_key", "aws_access_key_id", "TOKEN"]
)
def test_values_of_all_secret_options_are_masked(name: str) -> None:
    assert without_secrets("refused: hunter2", {"client": {name: "hunter2"}, "region": "eu"}) == "refused: …"
