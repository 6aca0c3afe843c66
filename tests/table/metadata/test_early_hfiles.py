"""HFiles of Hudi 1.1 before its release: an empty encryption key, bare rows as keys, a byte of a version behind values."""

from __future__ import annotations

from pathlib import Path

import pytest

from tagstream.streaming.batch.metadata_prepare import drop_unkept, unkept
from tagstream.streaming.options.cli import load_options
from tagstream.table.errors import UnsupportedTableError
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.metadata.hfile import read_trailer, trailer_fields
from tagstream.table.metadata.hfile_block import FileRange
from tagstream.table.metadata.metadata_table import MetadataTable, listed_by_metadata
from tagstream.table.read.snapshot import read_snapshot
from tagstream.table.read.stored_keys import names_single_key
from tagstream.table.services.validate_metadata import validate_metadata
from tests.support.public_tables import unpack

EARLY = ("hudi_hudi-v9-table", "hudi_hudi-v9-table-complex-keygen")


@pytest.mark.parametrize("name", EARLY)
def test_such_a_metadata_table_is_read(name: str, tmp_path: Path) -> None:
    table = HoodieTable.open(str(unpack(name, tmp_path)))
    metadata = MetadataTable.open(table, table.timeline())
    assert metadata is not None
    assert metadata.partition_paths() == table.view().partitions()
    for partition in metadata.partition_paths():
        there = {entry.name for entry in table.storage.list(partition)}
        assert metadata.files(partition).keys() <= there
    assert validate_metadata(table) == []
    assert read_snapshot(listed_by_metadata(table)).num_rows == read_snapshot(table).num_rows == 8


def encrypted(place: Path) -> Path:
    """A file of the listing, with an encryption key in its trailer."""
    (file, *_) = sorted((place / ".hoodie" / "metadata" / "files").glob("*.hfile"))
    data = file.read_bytes()
    trailer = data.rindex(b'TRABLK"$')
    fields = trailer_fields(data[trailer:])
    assert fields[13] == [b""]
    empty = data.index(b"\x6a\x00", trailer)  # field 13, no bytes
    size = data[trailer + 8]
    longer = bytes([size + 1]) + data[trailer + 9 : empty] + b"\x6a\x01k" + data[empty + 2 : trailer + 9 + size]
    pad = data[trailer + 9 + size + 1 :]
    file.write_bytes(data[: trailer + 8] + longer + pad)
    return file


def test_an_hfile_with_an_encryption_key_is_refused_yet(tmp_path: Path) -> None:
    place = unpack(EARLY[0], tmp_path)
    file = encrypted(place)
    storage = HoodieTable.open(str(place)).storage
    rel = str(file.relative_to(place))
    with pytest.raises(UnsupportedTableError, match="is an encrypted HFile"):
        read_trailer(FileRange(storage, rel, 0, file.stat().st_size))


@pytest.mark.parametrize("name", EARLY)
def test_a_metadata_table_that_is_not_read_is_listed_around_and_dropped(name: str, tmp_path: Path) -> None:
    """The complex generator looks at rows before a start drops the table; a dry run said that it would be kept."""
    place = unpack(name, tmp_path)
    encrypted(place)
    table = listed_by_metadata(HoodieTable.open(str(place)))
    assert read_snapshot(table).num_rows == 8
    assert names_single_key(table) in (None, False)
    at = ["--target-base-path", str(place), "--checkpoint-dir", str(tmp_path / "c"), "--bootstrap-only"]
    options = load_options(at).metadata
    found = unkept(table, options)
    assert found.whole is not None and "is an encrypted HFile" in found.whole
    dropped = drop_unkept(table, options, 1)
    assert dropped.config.metadata_partitions == ()
