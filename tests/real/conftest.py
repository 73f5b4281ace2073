"""What tests of real servers share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.real.fault_proxy import FaultProxy
from tests.real.s3_server import S3Server


@pytest.fixture
def proxy(s3: S3Server) -> Iterator[FaultProxy]:
    """Stands before the S3 server; requests that it makes itself are signed as the server's owner does."""
    with FaultProxy(s3.endpoint_url, secret=s3.secret) as proxy:
        yield proxy
