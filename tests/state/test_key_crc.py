"""The CRC of many keys is zlib's."""

from __future__ import annotations

import zlib

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tagstream.state.key_crc import crc_of_keys, state_key_groups
from tagstream.state.layout import key_group


@settings(deadline=None)
@given(st.lists(st.binary(max_size=150), max_size=60), st.binary(max_size=9), st.integers(0, 3), st.integers(0, 2))
def test_as_zlib_gives_it(keys: list[bytes], prefix: bytes, first: int, skip: int) -> None:
    start = zlib.crc32(prefix)
    found = crc_of_keys(pa.array(keys, pa.binary()).slice(first), start, skip)
    assert found.tolist() == [zlib.crc32(prefix + key[skip:]) for key in keys[first:]]


@given(st.lists(st.none() | st.binary(max_size=80), max_size=40), st.integers(1, 9))
def test_the_group_of_a_state_key(skeys: list[bytes | None], groups: int) -> None:
    found = state_key_groups(pa.array(skeys, pa.binary()), groups).tolist()
    assert found == [key_group((key or b"")[1:], groups) for key in skeys]


def test_many_keys_of_several_lengths_and_letters() -> None:
    keys = [f"{'ключ' if n % 3 else ''}{n}" for n in range(40_000)]
    assert crc_of_keys(pa.array(keys)).tolist() == [zlib.crc32(key.encode()) for key in keys]
    assert crc_of_keys(pa.array(["", ""])).tolist() == [0, 0]
    with pytest.raises(TypeError, match="not strings or binary"):
        crc_of_keys(pa.array([1]))
