"""HFiles written here: read back whole and by key, and compared with the parts of files that the JVM wrote."""

from __future__ import annotations

import itertools
from io import BytesIO
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tagstream.table.errors import InvalidKeyError
from tagstream.table.metadata.hfile import HFile
from tagstream.table.metadata.hfile_block import DATA, ROOT_INDEX, Codec, read_block
from tagstream.table.metadata.hfile_writer import HFileSummary, HFileWriter, hfile_bytes
from tagstream.table.metadata.metadata_writer import key_filter
from tests.support.stored import stored
from tests.table.metadata import hfiles
from tests.table.metadata.hfiles import Rows, filter_of
from tests.table.metadata.test_hfile import lookup, rows_of
from tests.table.reference import unpack


def arrays(rows: Rows) -> tuple[pa.Array, pa.Array]:
    return pa.array([key for key, _ in rows], pa.binary()), pa.array([value for _, value in rows], pa.binary())


def write(rows: Rows, codec: Codec, block_bytes: int, cuts: list[int]) -> tuple[bytes, HFileSummary]:
    """A file of the rows, handed over in the pieces that the cuts make."""
    out = BytesIO()
    writer = HFileWriter(out, '"bytes"', codec, block_bytes)
    places = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    for start, end in itertools.pairwise(places):
        writer.add(*arrays(rows[start:end]))
    summary = writer.finish()
    return out.getvalue(), summary


def opened(data: bytes, folder: Path) -> HFile:
    (path := folder / "written.hfile").write_bytes(data)
    return HFile.open(*stored(path))


@settings(max_examples=60, deadline=None)
@given(
    rows=st.dictionaries(st.binary(max_size=300), st.binary(max_size=600), max_size=60),
    codec=st.sampled_from([Codec.GZ, Codec.NONE]),
    block_bytes=st.sampled_from([1, 100, 1000, 65536]),
    cuts=st.lists(st.integers(0, 60), max_size=3),
)
def test_what_is_written_is_read(
    rows: dict[bytes, bytes],
    codec: Codec,
    block_bytes: int,
    cuts: list[int],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    wanted = sorted(rows.items())
    data, summary = write(wanted, codec, block_bytes, cuts)
    file = opened(data, tmp_path_factory.getbasetemp())
    assert rows_of(file.scan()) == wanted
    assert lookup(file, rows) == wanted
    assert lookup(file, [b"", b"nothing"]) == [row for row in wanted if row[0] in (b"", b"nothing")]
    keys = [key for key, _ in wanted]
    assert summary == HFileSummary(len(wanted), len(data), keys[0] if keys else b"", keys[-1] if keys else b"")
    assert file.info["schema"] == b'"bytes"'


@pytest.mark.parametrize(("name", "codec"), [("native_gz", Codec.GZ), ("native_none", Codec.NONE)])
def test_the_same_entries_lie_as_in_the_file_of_the_jvm(name: str, codec: Codec, tmp_path: Path) -> None:
    rows = hfiles.rows()
    (tmp_path / "jvm").mkdir()
    theirs = HFile.open(*stored(hfiles.unpack(name, tmp_path / "jvm")))
    data, _ = write(rows, codec, 2048, [])
    ours = opened(data, tmp_path)
    blocks: tuple[list[bytes], list[bytes]] = ([], [])
    for file, found in zip((ours, theirs), blocks, strict=True):
        offset = file.trailer.first_data_block
        while offset < file.trailer.load_on_open:
            block = read_block(file.source, offset, codec)
            if block.magic == DATA:
                found.append(block.data)
            offset = block.end
    assert b"".join(blocks[0]) == b"".join(blocks[1])
    assert [len(block) for block in blocks[0]] == [len(block) for block in blocks[1]]
    index = [read_block(file.source, file.trailer.load_on_open, codec) for file in (ours, theirs)]
    assert [block.magic for block in index] == [ROOT_INDEX, ROOT_INDEX]
    assert ours.trailer.index_count == theirs.trailer.index_count
    assert ours.trailer.entries == theirs.trailer.entries
    same = ("hfile.AVG_KEY_LEN", "hfile.AVG_VALUE_LEN", "hfile.LASTKEY", "KEY_VALUE_VERSION", "MAX_MEMSTORE_TS_KEY")
    (tmp_path / "hbase").mkdir()
    hbase = HFile.open(*stored(hfiles.unpack("hbase_none", tmp_path / "hbase")))
    assert {key: ours.info[key] for key in same} == {key: hbase.info[key] for key in same}


REAL_BASE_FILES = {
    "mor_v6_record_index_015": 6, "cow_v9_record_index": 9, "mor_v9_partitioned_record_index": 9, "mor_v9_services": 9,
}  # fmt: skip


@pytest.mark.parametrize(("name", "version"), REAL_BASE_FILES.items())
def test_the_filter_of_the_keys_is_that_of_the_jvm(name: str, version: int, tmp_path: Path) -> None:
    """Base files of real metadata tables, written again: the filter's bytes, its kind, the least and the greatest key."""
    paths = sorted((unpack(name, tmp_path) / ".hoodie/metadata").rglob("*.hfile"))
    assert paths
    for path in paths:
        theirs, out = HFile.open(*stored(path)), BytesIO()
        writer = HFileWriter(out, theirs.info["schema"].decode(), bloom=key_filter(version))
        for batch in theirs.scan():
            writer.add(*batch.columns)
        writer.finish()
        ours = opened(out.getvalue(), tmp_path)
        assert filter_of(ours) == filter_of(theirs) is not None
        told = ("bloomFilterTypeCode", "minRecordKey", "maxRecordKey", "schema", "hfile.AVG_VALUE_LEN")
        assert {key: ours.info[key] for key in told} == {key: theirs.info[key] for key in told}
        assert rows_of(ours.scan()) == rows_of(theirs.scan())


def test_a_file_without_a_filter_has_no_meta_block(tmp_path: Path) -> None:
    file = opened(hfile_bytes(*arrays([(b"a", b"1")]), ""), tmp_path)
    assert filter_of(file) is None
    assert "bloomFilterTypeCode" not in file.info


def test_a_file_of_many_blocks_is_found_through_its_root_index(tmp_path: Path) -> None:
    rows = [(f"key-{n:06d}".encode(), b"v" * (n % 50)) for n in range(20_000)]
    data, _ = write(rows, Codec.NONE, 64, [7, 15_000])
    file = opened(data, tmp_path)
    assert file.trailer.index_count > 10_000
    assert file.trailer.index_levels == 1
    assert lookup(file, [key for key, _ in rows[::777]]) == rows[::777]


def test_an_entry_larger_than_a_chunk(tmp_path: Path) -> None:
    rows = [(b"a", b"x" * 9_000_000), (b"b", b"y" * 100), (b"c", b"z" * 9_000_000)]
    assert rows_of(opened(hfile_bytes(*arrays(rows), '"bytes"'), tmp_path).scan()) == rows


def test_keys_that_do_not_ascend_are_refused() -> None:
    for keys in ([b"b", b"a"], [b"a", b"a"]):
        with pytest.raises(ValueError, match="ascend"):
            hfile_bytes(*arrays([(key, b"") for key in keys]), "")
    writer = HFileWriter(BytesIO(), "")
    writer.add(*arrays([(b"b", b"")]))
    with pytest.raises(ValueError, match="ascend"):
        writer.add(*arrays([(b"b", b"")]))


def test_a_key_that_is_too_long_is_refused() -> None:
    with pytest.raises(InvalidKeyError, match="32768 bytes"):
        hfile_bytes(*arrays([(b"k" * 32768, b"")]), "")


def test_other_codecs_are_refused() -> None:
    with pytest.raises(ValueError, match="SNAPPY"):
        HFileWriter(BytesIO(), "", Codec.SNAPPY)
