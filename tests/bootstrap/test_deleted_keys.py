"""The files with which streams tell each other the keys that they have deleted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tagstream.bootstrap import deleted_keys
from tagstream.bootstrap.spill import SpillWriter, read_pieces
from tagstream.state.codec import TOMBSTONE
from tagstream.state.key_crc import state_key_groups
from tagstream.state.layout import OrderingKind
from tagstream.table.errors import CorruptFileError
from tagstream.table.storage.opening import open_storage
from tagstream.table.storage.storage import Storage
from tagstream.table.timeline.timeline import Timeline

GROUPS = 4
KEYS = [f"\x01key {n}".encode() for n in range(20)]


@pytest.fixture
def table(tmp_path: Path) -> Storage:
    return open_storage(str(tmp_path / "table"))


def objects(values: list[Any]) -> Any:
    found = np.empty(len(values), object)
    found[:] = values
    return found


def spilled(table: Storage, tmp_path: Path, kind: OrderingKind) -> dict[bytes, tuple[Any, int, int]]:
    """Key -> (ordering value, flags, slice) of all files, by the key group that each is in."""
    files = [f"{deleted_keys.FOLDER}/{name}" for name in table.names(deleted_keys.FOLDER)]
    spills = open_storage(str(tmp_path / "spills"))
    done = deleted_keys.spill(table, files, SpillWriter(spills, 3, kind, 7), GROUPS, 9)
    found = {}
    for group in range(GROUPS):
        for piece in read_pieces(spills, [done], group):
            for row in piece.to_pylist():
                assert state_key_groups(pa.array([row["skey"]], pa.binary()), GROUPS)[0] == group
                found[row["skey"]] = (row["ordering"], row["flags"], row["slice"])
    return found


@pytest.mark.parametrize("kind", ["int64", "bytes"])
def test_what_is_written_is_read_by_key_group(table: Storage, tmp_path: Path, kind: OrderingKind) -> None:
    values = [b"%02d" % n if kind == "bytes" else n for n in range(20)]
    ordering = objects(values) if kind == "bytes" else np.array(values)
    parts = [deleted_keys.encode(objects(KEYS[at : at + 10]), ordering[at : at + 10], kind) for at in (0, 10)]
    assert deleted_keys.write(table, "20260101000000001", parts) == 20
    assert spilled(table, tmp_path, kind) == {
        key: (value, TOMBSTONE, 9) for key, value in zip(KEYS, values, strict=True)
    }


def test_a_batch_without_deletes_writes_no_file(table: Storage) -> None:
    assert deleted_keys.write(table, "20260101000000001", []) == 0
    assert not table.names(deleted_keys.FOLDER)


def test_a_file_counts_if_its_instant_is_completed(table: Storage) -> None:
    part = deleted_keys.encode(objects(KEYS[:1]), np.array([5]), "int64")
    timeline = ".hoodie"
    for time in ("20260101000000001", "20260101000000002", "20260101000000003"):
        deleted_keys.write(table, time, [part])
    table.replace(f"{timeline}/20260101000000001.commit", b"{}")
    table.replace(f"{timeline}/20260101000000002.commit.requested", b"")
    table.replace(f"{timeline}/20260101000000002.inflight", b"")
    loaded = Timeline.load(table, timeline)
    first = f"{deleted_keys.FOLDER}/20260101000000001.arrow"
    assert deleted_keys.files_of(table, loaded) == (first,), "the second is pending, the third was rolled back"
    assert deleted_keys.files_of(table, loaded, ["20260101000000001", "20260101000000009"]) == (first,)
    deleted_keys.forget(table, "20260101000000003")
    assert len(table.names(deleted_keys.FOLDER)) == 2


def test_files_are_kept_for_a_week(table: Storage) -> None:
    part = deleted_keys.encode(objects(KEYS[:1]), np.array([5]), "int64")
    deleted_keys.write(table, "20260101000000001", [part])
    (entry,) = table.list(deleted_keys.FOLDER)
    deleted_keys.forget_old(table, entry.mtime_ms + deleted_keys.KEPT_MS)
    assert table.names(deleted_keys.FOLDER) == (entry.name,)
    deleted_keys.forget_old(table, entry.mtime_ms + deleted_keys.KEPT_MS + 1)
    assert not table.names(deleted_keys.FOLDER)


def test_another_order_and_a_damaged_file_are_named(table: Storage, tmp_path: Path) -> None:
    part = deleted_keys.encode(objects(KEYS[:1]), np.array([5]), "int64")
    deleted_keys.write(table, "20260101000000001", [part])
    with pytest.raises(CorruptFileError, match="must order events by the same field"):
        spilled(table, tmp_path, "bytes")
    table.replace(f"{deleted_keys.FOLDER}/20260101000000001.arrow", b"not Arrow")
    with pytest.raises(
        CorruptFileError, match=r"20260101000000001\.arrow, the deleted keys of a commit, cannot be read"
    ):
        spilled(table, tmp_path, "int64")
