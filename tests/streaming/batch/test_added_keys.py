"""The hashes of keys that a batch adds: in a file, and compared with another batch's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tagstream.streaming.batch import added_keys
from tagstream.streaming.batch.added_keys import AddedKeys, hashes_of
from tagstream.table.errors import CorruptFileError
from tagstream.table.storage.opening import open_storage

KEYS = st.lists(st.text(max_size=8), max_size=30)


@given(KEYS, KEYS)
def test_two_batches_have_a_key_in_common(ours: list[str], theirs: list[str]) -> None:
    one, other = (hashes_of(pa.array(keys, pa.string())) for keys in (ours, theirs))
    assert AddedKeys(True, one).may_have_one_of(other) == (not set(ours).isdisjoint(theirs))


def test_unknown_keys_may_be_any() -> None:
    known = hashes_of(pa.array(["a"]))
    assert AddedKeys(True).may_have_one_of(known)
    assert AddedKeys(True, known).may_have_one_of(None)


def test_a_hash_stays_the_same() -> None:
    """Streams of different versions compare them."""
    assert hashes_of(pa.array(["k1"])).tolist() == [6387198098199578117]
    assert hashes_of(pa.array([b"k1"], pa.binary())).tolist() == hashes_of(pa.array(["k1"])).tolist()


def test_the_file_of_a_batch(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path))
    parts = [hashes_of(pa.array(keys)) for keys in (["a", "b"], ["c", "a"])]
    whole = added_keys.merged(map(added_keys.encode, parts))
    assert added_keys.write(storage, "1", whole) == 3
    found = added_keys.read(storage, "1", 3)
    assert found is not None
    assert np.array_equal(found, hashes_of(pa.array(["a", "b", "c"])))
    with pytest.raises(CorruptFileError, match="24 bytes instead of 32"):
        added_keys.read(storage, "1", 4)
    added_keys.forget(storage, "1")
    assert added_keys.read(storage, "1", 3) is None
    assert added_keys.write(storage, "2", added_keys.merged([])) == 0
    none = added_keys.read(storage, "2", 0)
    assert none is not None
    assert len(none) == 0


def test_old_files_go(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path))
    added_keys.write(storage, "1", hashes_of(pa.array(["a"])))
    (entry,) = storage.list(added_keys.FOLDER)
    added_keys.forget_old(storage, entry.mtime_ms + added_keys.KEPT_MS)
    assert storage.names(added_keys.FOLDER)
    added_keys.forget_old(storage, entry.mtime_ms + added_keys.KEPT_MS + 1)
    assert not storage.names(added_keys.FOLDER)
