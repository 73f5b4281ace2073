from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ingest.sources.kafka.share import share

needs = st.lists(st.integers(0, 1000), max_size=20)
limits = st.integers(1, 5000)


@given(needs, limits)
def test_nobody_gets_more_than_it_needs_and_nobody_who_needs_something_gets_nothing(
    needs: list[int], limit: int
) -> None:
    for need, got in zip(needs, share(needs, limit), strict=True):
        assert min(need, 1) <= got <= need


@given(needs, limits)
def test_all_of_the_limit_is_given_away_where_it_is_needed(needs: list[int], limit: int) -> None:
    in_need = sum(need > 0 for need in needs)
    assert sum(share(needs, limit)) == min(sum(needs), max(limit, in_need))


@given(needs, limits)
def test_those_whose_needs_are_not_met_get_the_same_and_at_least_as_much_as_others(
    needs: list[int], limit: int
) -> None:
    shares = share(needs, limit)
    unmet = [got for need, got in zip(needs, shares, strict=True) if got < need]
    assert not unmet or (max(unmet) - min(unmet) <= 1 and min(unmet) >= max(shares) - 1)


def test_what_a_small_partition_does_not_need_goes_to_the_large_ones() -> None:
    assert share([10, 1000, 0, 400], 310) == [10, 150, 0, 150]
