"""Values for people."""

from __future__ import annotations

import pytest

from tagstream.streaming.monitor import values
from tagstream.table.services.health import SIZE_BOUNDS


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("2027-01-15/a b=ü 日本 😀", "2027-01-15/a b=ü 日本 😀"),
        ("a\x1b[31m\x00\u202eb\n\ud800\u200b", "a\\x1b[31m\\x00\\u202eb\\x0a\\ud800\\u200b"),
        (None, ""),
        (7, "7"),
        ("x" * 500, f"{'x' * 80} … {'x' * 80}"),
    ],
)
def test_texts_from_outside(text: object, shown: str) -> None:
    assert values.outside(text) == shown


def test_numbers_sizes_and_times() -> None:
    assert [values.number(n) for n in (None, 0, 0.0, 7, 0.12345, 12.345, 999.6, 1234567, 1e9)] == [
        "–", "0", "0", "7", "0.123", "12.3", "1,000", "1,234,567", "1,000,000,000",
    ]  # fmt: skip
    assert [values.size(n) for n in (None, 0, 1023, 1024, 5 << 30, 3 << 50)] == [
        "–", "0 B", "1023 B", "1.0 KiB", "5.0 GiB", "3072.0 TiB",
    ]  # fmt: skip
    assert [values.span(s) for s in (None, 0, 0.25, 59.94, 61, 3_599, 3_600, 90_061, 10_000_000)] == [
        "–", "0 ms", "250 ms", "59.9 s", "1 min 1 s", "59 min 59 s", "1 h 0 min", "1 d 1 h", "115 d 17 h",
    ]  # fmt: skip
    assert values.moment(0) == "1970-01-01 00:00:00 UTC"
    assert values.moment(None) == "–"
    assert values.moment(10**18) == "1000000000000000000"


def test_every_bound_of_file_sizes_has_a_name() -> None:
    assert len(values.size_bounds()) == len(SIZE_BOUNDS) + 1
