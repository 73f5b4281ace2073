"""Every value of every type, in every format and on every path, is decoded as by Python, or is rejected."""

from __future__ import annotations

import os

import pytest

from tests.property.values_at_length import check
from tests.sampling import seed, share


@pytest.mark.slow
def test_every_value_is_exact_or_rejected_in_every_type_and_format_and_on_every_path() -> None:
    values = int(os.environ.get("VALUES") or share(500_000, 5_000_000))
    print(f"SEED={seed()} VALUES={values}")
    assert check(seed(), values) >= values
