"""CRC-32C against the values of RFC 3720 and against the definition, bit by bit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tagstream.table.metadata.hfile_block import crc32c_of_pieces


def by_definition(data: bytes) -> int:
    state = 0xFFFFFFFF
    for byte in data:
        state ^= byte
        for _ in range(8):
            state = state >> 1 ^ (0x82F63B78 if state & 1 else 0)
    return state ^ 0xFFFFFFFF


@pytest.mark.parametrize(
    ("data", "checksum"),
    [
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(reversed(range(32))), 0x113FDB5C),
        (b"123456789", 0xE3069283),
        (b"", 0),
    ],
)
def test_values_of_the_standard(data: bytes, checksum: int) -> None:
    assert crc32c_of_pieces(data, 16384).tolist() == [checksum]


@given(st.binary(max_size=3000), st.integers(1, 2500))
def test_pieces(data: bytes, piece: int) -> None:
    pieces = [data[start : start + piece] for start in range(0, len(data), piece)][:50] or [b""]
    found = crc32c_of_pieces(b"".join(pieces), piece)
    assert found.tolist() == [by_definition(part) for part in pieces]


def test_a_piece_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="one byte"):
        crc32c_of_pieces(b"a", 0)
