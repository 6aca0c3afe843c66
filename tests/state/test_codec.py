"""The location record's bytes, and sorting of keys."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tagstream.state.codec import NO_LOCATION, TOMBSTONE, Records, decode, encode, sort_keys
from tagstream.state.errors import StateError
from tagstream.state.layout import OrderingKind
from tagstream.state.store_entries import StoreMeta
from tests.state.tagging import objects

GOLDEN = {
    "int64": [
        "07000000d2029649000000000a00000000feffffffffffffff",
        "ffffffffd2029649000000000a000000010900000000000000",
    ],
    "bytes": ["07000000d2029649000000000a00000000" + b"x\x00".hex(), "ffffffffd2029649000000000a00000001"],
    "tuple": ["07000000d2029649000000000a00000000" + b"x\x00".hex(), "ffffffffd2029649000000000a00000001"],
    "none": ["07000000d2029649000000000a00000000", "ffffffffd2029649000000000a00000001"],
}


def records(kind: str) -> Records:
    ordering = (
        objects([b"x\x00", b""]) if kind in ("bytes", "tuple") else np.array([-2, 9] if kind == "int64" else [0, 0])
    )
    return Records(
        np.array([7, NO_LOCATION], np.uint32),
        np.array([1234567890, 1234567890]),
        np.array([10, 10], np.uint32),
        np.array([0, TOMBSTONE], np.uint8),
        ordering,
    )


@pytest.mark.parametrize("kind", ["int64", "bytes", "tuple", "none"])
def test_bytes_of_format_1(kind: OrderingKind) -> None:
    values, _ = encode(records(kind), kind)
    stored = list(values)
    assert [v.hex() for v in stored] == GOLDEN[kind]
    back = decode(stored, kind)
    for name in ("loc", "instant", "minutes", "flags", "ordering"):
        assert getattr(back, name).tolist() == getattr(records(kind), name).tolist()


@pytest.mark.parametrize("kind", ["int64", "bytes", "tuple", "none"])
def test_records_of_another_width_are_refused(kind: OrderingKind) -> None:
    with pytest.raises(ValueError, match="record"):
        decode([b"short"], kind)


def test_another_format_is_refused() -> None:
    with pytest.raises(StateError, match="key group 5 has record format 2"):
        StoreMeta.from_bytes(StoreMeta().to_bytes().replace(b'"format":1', b'"format":2'), 5)


@given(st.lists(st.binary(max_size=20) | st.sampled_from([b"a", b"a\x00", b"a\x00\x00", b"ab", b"x" * 200])))
def test_keys_are_sorted_bytewise_and_stable(keys: list[bytes]) -> None:
    order, first = sort_keys(objects(keys))
    assert order.tolist() == sorted(range(len(keys)), key=keys.__getitem__)
    assert int(first.sum()) == len(set(keys))
    assert [keys[i] for i in order[first]] == sorted(set(keys))
