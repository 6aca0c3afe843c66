"""HFiles of the JVM's two writers, read whole and by key; damaged ones."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tagstream.table.errors import CorruptFileError, UnsupportedTableError
from tagstream.table.file_group.log_file import scan_log_file
from tagstream.table.file_group.log_format import BlockType
from tagstream.table.metadata.hfile import HFile
from tagstream.table.metadata.hfile_block import FileRange
from tests.support.stored import stored
from tests.table.metadata import hfiles
from tests.table.metadata.hfiles import NAMES, Rows
from tests.table.reference import NAMES as TABLES
from tests.table.reference import unpack as unpack_table

VECTORS: dict[str, Any] = json.loads((hfiles.FIXTURES / "vectors/mdt.json").read_text())


def rows_of(batches: Iterable[pa.RecordBatch]) -> Rows:
    return [row for batch in batches for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)]


def lookup(file: HFile, keys: Iterable[bytes]) -> Rows:
    return rows_of(file.lookup(pa.array(sorted(set(keys)), pa.binary())))


@pytest.mark.parametrize("name", NAMES)
def test_a_scan_finds_every_entry_in_order(name: str, tmp_path: Path) -> None:
    file = HFile.open(*stored(hfiles.unpack(name, tmp_path)))
    assert file.entries == 2999
    assert rows_of(file.scan()) == hfiles.rows()
    assert file.info["schema"] == b"none"


@pytest.mark.parametrize("name", NAMES)
def test_a_lookup_finds_every_key_and_nothing_else(name: str, tmp_path: Path) -> None:
    file, rows = HFile.open(*stored(hfiles.unpack(name, tmp_path))), hfiles.rows()
    assert lookup(file, (key for key, _ in rows)) == rows
    assert lookup(file, []) == []
    assert lookup(file, [b"", b"a", b"key-", b"key-5", b"zzz", rows[7][0] + b"x"]) == []
    for key, value in (rows[0], rows[-1], rows[1500]):
        assert lookup(file, [key, b"key-5", b"zzz"]) == [(key, value)]


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=25)
@given(data=st.data())
def test_lookups_of_some_keys(name: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / f"{name}.hfile"
    if not path.exists():
        hfiles.unpack(name, path.parent)
    rows = dict(hfiles.rows())
    known = data.draw(st.lists(st.sampled_from(sorted(rows)), max_size=20))
    unknown = data.draw(st.lists(st.binary(max_size=12), max_size=5))
    found = lookup(HFile.open(*stored(path)), [*known, *unknown])
    assert found == sorted((key, rows[key]) for key in {*known, *unknown} & rows.keys())


@pytest.mark.parametrize("name", NAMES)
def test_a_lookup_reads_only_blocks_that_may_hold_the_key(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    original = FileRange.read

    def counting(self: FileRange, offset: int, size: int) -> bytes:
        read.append(size)
        return original(self, offset, size)

    monkeypatch.setattr(FileRange, "read", counting)
    path = hfiles.unpack(name, tmp_path)
    file = HFile.open(*stored(path))
    assert len(lookup(file, [hfiles.rows()[1234][0]])) == 1
    # trailer, root index, properties, perhaps a leaf index, and one data block
    assert sum(read) < 4096 + (path.stat().st_size - file.trailer.load_on_open) + 2 * 9000


def test_the_small_file_of_a_metadata_table(tmp_path: Path) -> None:
    vector = VECTORS["small_hfile_v6"]
    (path := tmp_path / vector["file_name"]).write_bytes(base64.b64decode(vector["base64"]))
    file = HFile.open(*stored(path))
    found = [[key.decode(), value.hex()] for key, value in rows_of(file.scan())]
    assert found == vector["entries"]
    fields = vector["trailer_fields"]
    assert (file.trailer.load_on_open, file.entries, file.trailer.index_levels) == (
        fields["2"],
        fields["7"],
        fields["8"],
    )


def test_an_hfile_inside_a_log_block(tmp_path: Path) -> None:
    vector = VECTORS["hfile_log_block_v6"]
    (path := tmp_path / vector["file_name"]).write_bytes(base64.b64decode(vector["base64"]))
    (block,) = scan_log_file(*stored(path))
    assert block.type is BlockType.HFILE_DATA
    rows = rows_of(HFile.of_block(block).scan())
    assert [key.decode() for key, _ in rows] == [entry["key"] for entry in vector["entries"]]
    assert lookup(HFile.of_block(block), [rows[1][0], b"2023"]) == [rows[1]]


@pytest.mark.parametrize("name", TABLES)
def test_every_hfile_of_the_reference_tables(name: str, tmp_path: Path) -> None:
    folder = unpack_table(name, tmp_path) / ".hoodie/metadata"
    files = [HFile.open(*stored(path)) for path in sorted(folder.rglob("*.hfile"))]
    for log in sorted(folder.rglob(".*.log.*")):
        if log.parent.name != "archived" and not log.name.endswith(".crc"):
            files += [HFile.of_block(b) for b in scan_log_file(*stored(log)) if b.type is BlockType.HFILE_DATA]
    for file in files:
        rows = rows_of(file.scan())
        assert len(rows) == file.entries
        assert [key for key, _ in rows] == sorted(key for key, _ in rows)
        assert lookup(file, (key for key, _ in rows)) == rows
    assert bool(files) == folder.is_dir()


def damaged(folder: Path, data: bytes) -> HFile:
    (path := folder / "damaged.hfile").write_bytes(data)
    return HFile.open(*stored(path))


def read_all(file: HFile) -> None:
    rows_of(file.scan())
    lookup(file, [key for key, _ in hfiles.rows()[::97]])


@pytest.mark.extended("more forms of files", first=("native_gz",))
@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=60, deadline=2000)
@given(data=st.data())
def test_damage_is_a_named_error(name: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    whole = bytearray(hfiles.content(f"{name}.hfile"))
    # Half of the damage in the part that leads to everything else: index, properties and trailer.
    places = st.integers(0, len(whole) - 1) | st.integers(len(whole) - 7000, len(whole) - 1)
    for place, byte in data.draw(st.lists(st.tuples(places, st.integers(0, 255)), max_size=4)):
        whole[place] = byte
    cut = data.draw(st.none() | st.integers(0, len(whole)))
    file = damaged(tmp_path_factory.getbasetemp(), bytes(whole[:cut]))
    try:
        read_all(file)
    except (CorruptFileError, UnsupportedTableError) as error:
        assert file.source.path in str(error)


@pytest.mark.extended("damages each byte of an index block", first=("data",))
# Without checksums nothing stands between a wrong length and the parser.
@pytest.mark.parametrize("part", ["data", "index"])
@settings(max_examples=80, deadline=2000)
@given(data=st.data())
def test_damage_that_no_checksum_finds(
    part: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    whole = bytearray(without_checksums("hbase_none" if part == "data" else "native_none"))
    start = len(whole) - 12000 if part == "index" else 0
    for place, byte in data.draw(
        st.lists(st.tuples(st.integers(start, len(whole) - 1), st.integers(0, 255)), min_size=1)
    ):
        whole[place] = byte
    file = damaged(tmp_path_factory.getbasetemp(), bytes(whole))
    try:
        read_all(file)
    except (CorruptFileError, UnsupportedTableError) as error:
        assert file.source.path in str(error)


def without_checksums(name: str) -> bytes:
    """The file with the checksum type of every block set to none."""
    whole = bytearray(hfiles.content(f"{name}.hfile"))
    for magic in (b"DATABLK*", b"IDXROOT2", b"FILEINF2", b"IDXLEAF2"):
        at = whole.find(magic)
        while at >= 0:
            whole[at + 24] = 0
            at = whole.find(magic, at + 1)
    return bytes(whole)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("hbase_gz_levels", "byte 939, a block's checksum is not that of its bytes"),
        ("hbase_none", "byte 0, a block's checksum is not that of its bytes"),
        # Hudi 1.2.0 writes no checksums: only gzip's own one stands in their place.
        ("native_gz", "byte 912, a block's data cannot be uncompressed"),
    ],
)
def test_a_flipped_bit_of_the_data_is_found(name: str, found: str, tmp_path: Path) -> None:
    whole = bytearray(hfiles.content(f"{name}.hfile"))
    whole[1000] ^= 1
    with pytest.raises(CorruptFileError, match=rf"damaged\.hfile.* at {found}"):
        read_all(damaged(tmp_path, bytes(whole)))


@pytest.mark.parametrize("name", NAMES)
def test_a_cut_file_is_refused(name: str, tmp_path: Path) -> None:
    whole = hfiles.content(f"{name}.hfile")
    for size in (0, 100, 4095, 4096, 20_000, len(whole) - 1):
        with pytest.raises(CorruptFileError, match=r"damaged\.hfile"):
            read_all(damaged(tmp_path, whole[:size]))


@pytest.mark.parametrize(("number", "name"), [(0, "LZO"), (3, "SNAPPY"), (6, "ZSTD")])
def test_other_codecs_are_refused_by_name(number: int, name: str, tmp_path: Path) -> None:
    whole = bytearray(hfiles.content("native_gz.hfile"))
    # Field 12 of the trailer's message is the codec, one byte behind its tag.
    place = whole.index(b"\x60\x01", len(whole) - 4096)
    whole[place + 1] = number
    with pytest.raises(UnsupportedTableError, match=name):
        read_all(damaged(tmp_path, bytes(whole)))


def test_another_version_is_refused(tmp_path: Path) -> None:
    whole = bytearray(hfiles.content("native_gz.hfile"))
    whole[-1] = 2
    with pytest.raises(UnsupportedTableError, match="version 2"):
        read_all(damaged(tmp_path, bytes(whole)))


def test_values_are_avro_in_the_schema_of_the_file(tmp_path: Path) -> None:
    vector = VECTORS["small_hfile_v6"]
    (path := tmp_path / vector["file_name"]).write_bytes(base64.b64decode(vector["base64"]))
    schema = fastavro.parse_schema(json.loads(HFile.open(*stored(path)).info["schema"]))
    assert {"key", "type", "filesystemMetadata"} <= {field["name"] for field in schema["fields"]}
