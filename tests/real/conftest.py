"""Fixtures shared by the tests on real servers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.real.fault_proxy import FaultProxy
from tests.real.s3_server import S3Server


@pytest.fixture
def proxy(s3: S3Server) -> Iterator[FaultProxy]:
    """A proxy before the S3 server; it has the server's secret key, to sign changed requests anew."""
    with FaultProxy(s3.endpoint_url, secret=s3.secret) as proxy:
        yield proxy
