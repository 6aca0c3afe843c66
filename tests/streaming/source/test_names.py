"""Names and first bytes of source files."""

from __future__ import annotations

import bz2
import gzip

import pytest

from tagstream.streaming.errors import SourceError
from tagstream.streaming.source.source_file import check_form, codec_of, is_read


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("1.json", True),
        ("notes.txt", True),
        ("plain", True),
        ("day=1", True),
        ("_day=1", True),
        ("_SUCCESS", False),
        ("_x.json", False),
        (".x.json", False),
        ("x.json._COPYING_", False),
        ("x_COPYING_.json", True),
    ],
)
def test_which_names_are_read(name: str, read: bool) -> None:
    assert is_read(name) is read


@pytest.mark.parametrize(
    ("name", "codec"),
    [("a.json", None), ("a.json.gz", "gzip"), ("a.bz2", "bz2"), ("a.zst", "zstd"), ("a.deflate", "zlib")],
)
def test_the_ending_names_the_compression(name: str, codec: str | None) -> None:
    assert codec_of(name) == codec


@pytest.mark.parametrize("name", ["a.json.snappy", "a.lz4", "a.xz", "a.zip"])
def test_a_compression_that_is_not_read_is_refused_by_name(name: str) -> None:
    with pytest.raises(SourceError, match=f"{name}: files that end in .* are not supported; decompress it"):
        codec_of(name)


@pytest.mark.parametrize(
    ("codec", "first", "message"),
    [
        (None, gzip.compress(b"{}", mtime=0), r"is gzip by its first bytes, .* give it a name that ends in \.gz"),
        (None, bz2.compress(b"{}"), r"is bzip2 by its first bytes, .* ends in \.bz2"),
        (None, b"PAR1\x15\x04", "is Parquet by its first bytes, .* write it as JSON lines"),
        ("bz2", gzip.compress(b"{}", mtime=0), "is gzip by its first bytes"),
        ("gzip", b'{"id": 1}', "is not gzip by its first bytes, but its name says so"),
    ],
)
def test_a_file_of_another_form_than_its_name_is_refused(codec: str | None, first: bytes, message: str) -> None:
    with pytest.raises(SourceError, match=message):
        check_form("/in/x", codec, first[:6])


def test_a_file_of_its_names_form_is_fine() -> None:
    check_form("/in/x.json", None, b'{"id":')
    check_form("/in/x.gz", "gzip", gzip.compress(b"{}", mtime=0)[:6])
    check_form("/in/x.deflate", "zlib", b"x\x9c")
