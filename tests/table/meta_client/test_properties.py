"""hoodie.properties: Java's escapes, the checksum, and changes that a crash may cut off anywhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tagstream.table.errors import CorruptFileError, TableNotFoundError
from tagstream.table.meta_client import properties
from tagstream.table.storage.opening import open_storage

VALID = {"hoodie.table.name": "t", "hoodie.table.checksum": properties.table_checksum("", "t")}


@given(st.dictionaries(st.text(min_size=1, max_size=8), st.text(max_size=20), max_size=5))
def test_any_text_survives(values: dict[str, str]) -> None:
    assert properties.parse(properties.dump(values, "saved", 0)) == values


def test_text_is_what_java_writes() -> None:
    text = properties.dump({"k": 'a:b=c #!\n"é中'}, "Updated at", 1_767_225_600_123).decode("iso-8859-1")
    assert text.splitlines() == [
        "#Updated at 2026-01-01T00:00:00.123000Z",
        "#Thu Jan 01 00:00:00 UTC 2026",
        'k=a\\:b\\=c \\#\\!\\n"\\u00e9\\u4e2d',
    ]


def test_checksum_is_hudis() -> None:
    assert properties.table_checksum("default", "v6_complexkeygen_hivestyle") == "281415413"


def test_reading_says_what_is_wrong(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path))
    with pytest.raises(TableNotFoundError, match=str(tmp_path)):
        properties.read_properties(storage)
    properties.create_properties(storage, {**VALID, "hoodie.table.checksum": "1"}, 0)
    with pytest.raises(CorruptFileError, match="checksum"):
        properties.read_properties(storage)
    storage.replace(properties.PROPERTIES_FILE, b"a=b\n")
    with pytest.raises(CorruptFileError, match=r"hoodie\.table\.name"):
        properties.read_properties(storage)


def test_update_keeps_the_rest_and_no_backup(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path))
    properties.create_properties(storage, {**VALID, "a": "1"}, 0)
    assert properties.update_properties(storage, {"b": "2"}, 5)["a"] == "1"
    assert properties.read_properties(storage) == {**VALID, "a": "1", "b": "2"}
    assert not storage.exists(properties.BACKUP_FILE)


@pytest.mark.parametrize("main_is_gone", [True, False])
def test_a_change_that_was_cut_off_is_finished(main_is_gone: bool, tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path))
    properties.create_properties(storage, {**VALID, "a": "1"}, 0)
    storage.write_new(properties.BACKUP_FILE, storage.read(properties.PROPERTIES_FILE))
    if main_is_gone:
        storage.delete(properties.PROPERTIES_FILE)
    assert properties.read_properties(storage)["a"] == "1"
    assert properties.update_properties(storage, {"a": "2"}, 0)["a"] == "2"
    assert not storage.exists(properties.BACKUP_FILE)


def test_replacing_leaves_no_old_key_and_finishes_what_was_cut_off(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path))
    properties.create_properties(storage, {**VALID, "hoodie.table.precombine.field": "ts"}, 0)
    properties.replace_properties(storage, {**VALID, "k": "v"}, 1)
    assert properties.read_properties(storage) == {**VALID, "k": "v"}
    storage.write_new(properties.BACKUP_FILE, storage.read(properties.PROPERTIES_FILE))
    storage.delete(properties.PROPERTIES_FILE)  # as a kill in the middle leaves it
    properties.replace_properties(storage, VALID, 2)
    assert properties.read_properties(storage) == VALID
    assert not storage.exists(properties.BACKUP_FILE)
