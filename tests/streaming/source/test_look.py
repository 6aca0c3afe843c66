"""One file looked at: whole lines, growth, and what is no growth."""

from __future__ import annotations

import bz2
import gzip
import os
import zlib
from pathlib import Path

import pytest

from tagstream.streaming.errors import SourceError
from tagstream.streaming.source.source_file import FilePosition, SourceFile, end_of_whole_lines, is_object, look_at
from tagstream.table.storage.posix import PosixStorage

LATER = 10**15  # long after every file of these tests was written


@pytest.fixture
def storage(tmp_path: Path) -> PosixStorage:
    return PosixStorage(str(tmp_path))


def put(
    storage: PosixStorage, data: bytes, *, mtime_s: int = 1_000, name: str = "a.json", mode: str = "wb"
) -> SourceFile:
    path = Path(storage.root, name)
    with path.open(mode) as f:
        f.write(data)
    os.utime(path, (mtime_s, mtime_s))
    return SourceFile(name, path.stat().st_size, mtime_s * 1000)


def taken(storage: PosixStorage, file: SourceFile) -> FilePosition:
    position = look_at(storage, file, None, LATER).position
    assert position is not None
    return position


@pytest.mark.parametrize(
    ("data", "end", "waiting"),
    [
        (b"", 0, 0),
        (b'{"a": 1}\n', 9, 0),
        (b'{"a": 1}\n{"a": 2}\n', 18, 0),
        (b'{"a": 1}\n{"a": 2}', 17, 0),  # an object without its end of line is whole
        (b'{"a": 1}\n{"a": 2} \r', 19, 0),
        (b'{"a": 1}\n{"a": {"b": 2}', 9, 14),  # ends with a brace and is not whole
        (b'{"a": 1}\n{"a": "}', 9, 8),
        (b'{"a": 1}\n12', 9, 2),  # may become 123
        (b'{"a": 1', 0, 7),
        (b'{"a": 1}\n   ', 9, 0),
        (b'{"a": 1}\n{"a": "\xc3', 9, 8),  # half of a character
    ],
)
def test_what_is_whole(storage: PosixStorage, data: bytes, end: int, waiting: int) -> None:
    file = put(storage, data)
    assert end_of_whole_lines(storage, file.path, 0, file.size) == (end, waiting)


def test_a_line_longer_than_a_block_is_found(storage: PosixStorage) -> None:
    long = b'{"a": "' + b"x" * 200_000
    file = put(storage, b'{"b": 1}\n' + long)
    assert end_of_whole_lines(storage, file.path, 0, file.size) == (9, len(long))
    file = put(storage, b'{"b": 1}\n' + long + b'"}')
    assert end_of_whole_lines(storage, file.path, 0, file.size) == (file.size, 0)


def test_every_cut_of_a_file_is_read_to_a_whole_line_and_the_rest_later(storage: PosixStorage) -> None:
    """Wherever a writer's bytes end at a look: no line is cut, none is left out, none comes twice."""
    whole = b'{"a": "x}"}\n{"b": {"c": [1, "\\""]}}\n\n{"d": "\xc3\xa4"}\n{"e": 5}'
    for cut in range(len(whole) + 1):
        first = put(storage, whole[:cut], mtime_s=1_000)
        look = look_at(storage, first, None, LATER)
        known = look.position if look.kind == "new" else None
        end = 0 if known is None else known.end
        then = look_at(storage, put(storage, whole, mtime_s=2_000), known, LATER)
        assert then.kind in ("new", "same", "touched"), (cut, then)
        rest = whole[then.start : then.position.end] if then.kind == "new" and then.position else b""
        parts = [line for part in (whole[:end], rest) for line in part.split(b"\n") if line.strip()]
        assert parts == [line for line in whole.split(b"\n") if line], cut


def test_nothing_but_an_object_is_whole_without_its_end() -> None:
    assert is_object(b'{"a": [1, {"b": "}"}]}')
    assert not any(
        map(is_object, (b"", b"12", b'"x"', b"[1]", b'{"a": 1}}', b'{"a": 1} {"b": 2}', b"{" * 100_000 + b"}"))
    )


def test_a_file_that_is_the_same_is_not_opened(storage: PosixStorage) -> None:
    file = put(storage, b'{"a": 1}\n')
    known = taken(storage, file)
    (Path(storage.root) / file.path).unlink()
    assert look_at(storage, file, known, LATER).kind == "same"


def test_a_grown_file_gives_its_new_lines(storage: PosixStorage) -> None:
    known = taken(storage, put(storage, b'{"a": 1}\n'))
    look = look_at(storage, put(storage, b'{"a": 2}\n{"a"', mode="ab", mtime_s=2_000), known, LATER)
    assert (look.kind, look.start, look.position and look.position.end, look.waiting) == ("new", 9, 18, 4)


def test_the_end_of_line_of_an_object_that_was_taken_is_no_record(storage: PosixStorage) -> None:
    known = taken(storage, put(storage, b'{"a": 1}'))
    assert look_at(storage, put(storage, b"\n", mode="ab", mtime_s=2_000), known, LATER).kind == "same"
    look = look_at(storage, put(storage, b'{"a": 2}\n', mode="ab", mtime_s=2_001), known, LATER)
    assert (look.kind, look.start) == ("new", 8)


@pytest.mark.parametrize(
    ("now", "why"),
    [
        (b'{"a": 1}\n', "it has 9 bytes now, but 18 were read"),
        (b'{"a": 1}\n{"a": 3}\n', "the 18 bytes that were read have changed"),
        (b'{"a": 9}\n{"a": 2}\n{"a": 3}\n', "the 18 bytes that were read have changed"),
        (b"", "it has 0 bytes now, but 18 were read"),
    ],
)
def test_a_file_that_was_written_over_is_told(storage: PosixStorage, now: bytes, why: str) -> None:
    known = taken(storage, put(storage, b'{"a": 1}\n{"a": 2}\n'))
    look = look_at(storage, put(storage, now, mtime_s=2_000), known, LATER)
    assert (look.kind, look.why) == ("changed", why)


def test_the_beginning_of_a_long_file_counts_too(storage: PosixStorage) -> None:
    lines = b"".join(b'{"a": %d}\n' % n for n in range(1000))
    known = taken(storage, put(storage, lines))
    over = b'{"b": 0}\n' + lines[9:]
    assert look_at(storage, put(storage, over + b'{"c": 1}\n', mtime_s=2_000), known, LATER).kind == "changed"


def test_a_new_time_alone_is_told_and_reads_nothing(storage: PosixStorage) -> None:
    known = taken(storage, put(storage, b'{"a": 1}\n'))
    look = look_at(storage, put(storage, b'{"a": 1}\n', mtime_s=2_000), known, LATER)
    assert look.kind == "touched"
    assert look.position == FilePosition(9, 9, 2_000_000, known.head, known.tail)


COMPRESSED = {"a.gz": gzip.compress, "a.bz2": bz2.compress, "a.deflate": zlib.compress}


@pytest.mark.parametrize("name", COMPRESSED)
def test_a_compressed_file_is_taken_whole_once_it_is(storage: PosixStorage, name: str) -> None:
    data = COMPRESSED[name](b'{"a": 1}\n' * 100)  # type: ignore[operator]
    young = 1_000_000 + 100
    file = put(storage, data[:-3], name=name)
    assert look_at(storage, file, None, young).kind == "waiting"
    file = put(storage, data, name=name, mtime_s=1_001)
    look = look_at(storage, file, None, young)
    assert (look.kind, look.start, look.position and look.position.end) == ("new", 0, len(data))


def test_a_compressed_file_that_grows_is_another_file(storage: PosixStorage) -> None:
    data = gzip.compress(b'{"a": 1}\n')
    known = taken(storage, put(storage, data, name="a.gz"))
    look = look_at(storage, put(storage, data + data, name="a.gz", mtime_s=2_000), known, LATER)
    assert look.kind == "changed"
    assert "a compressed file has grown" in look.why


def test_gzip_under_another_name_is_refused_with_its_path(storage: PosixStorage) -> None:
    file = put(storage, gzip.compress(b'{"a": 1}\n'))
    with pytest.raises(SourceError, match=f"{storage.root}/a.json is gzip by its first bytes"):
        look_at(storage, file, None, LATER)
