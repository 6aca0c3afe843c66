"""The CRC of many keys is zlib's."""

from __future__ import annotations

import zlib

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tagstream.bootstrap.scan import crc_of_keys


@settings(deadline=None)
@given(st.lists(st.binary(max_size=150), max_size=60), st.binary(max_size=9), st.integers(0, 3))
def test_as_zlib_gives_it(keys: list[bytes], prefix: bytes, skipped: int) -> None:
    start = zlib.crc32(prefix)
    found = crc_of_keys(pa.array(keys, pa.binary()).slice(skipped), start)
    assert found.tolist() == [zlib.crc32(prefix + key) for key in keys[skipped:]]


def test_many_keys_of_several_lengths_and_letters() -> None:
    keys = [f"{'ключ' if n % 3 else ''}{n}" for n in range(40_000)]
    assert crc_of_keys(pa.array(keys)).tolist() == [zlib.crc32(key.encode()) for key in keys]
    assert crc_of_keys(pa.array(["", ""])).tolist() == [0, 0]
    with pytest.raises(TypeError, match="not strings or binary"):
        crc_of_keys(pa.array([1]))
