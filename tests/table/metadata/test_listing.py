"""Listing through the metadata table: the same slices as by folders, and no folder of the table is listed."""

from __future__ import annotations

import builtins
import pickle
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tagstream.table.file_group.fs_view import FileSlice, FileSystemView
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.metadata.metadata_table import FOLDER, listed_by_metadata
from tagstream.table.storage.posix import PosixStorage
from tagstream.table.storage.storage import META_FOLDER, FileEntry
from tests.table.metadata.test_metadata_table import WITH_METADATA
from tests.table.reference import NAMES, unpack


@dataclass(frozen=True)
class _Watched(PosixStorage):
    """A storage that tells which folders were listed."""

    listed: builtins.list[str] = field(default_factory=list, compare=False)

    def list(self, rel: str, prefixes: tuple[str, ...] = ("",)) -> builtins.list[FileEntry]:
        self.listed.append(rel)
        return super().list(rel, prefixes)


def slices(view: FileSystemView) -> list[FileSlice]:
    return [found for path in view.partitions() for found in view.latest_merged_slices(path)]


@pytest.mark.parametrize("name", sorted(WITH_METADATA))
def test_the_same_slices_as_by_folders(name: str, tmp_path: Path) -> None:
    by_folders = HoodieTable.open(str(unpack(name, tmp_path)))
    watched = _Watched(by_folders.base_path)
    table = listed_by_metadata(HoodieTable.open(watched))
    timeline = table.timeline()
    for as_of in [None, *(i.time for i in timeline.completed_writes)]:
        wanted = slices(by_folders.view(timeline, as_of))
        # Which log versions are free is not asked of a past instant, and files of failed writes are in no listing.
        assert [replace(s, next_log_version=1) for s in slices(table.view(timeline, as_of))] == [
            replace(s, next_log_version=1) for s in wanted
        ]
    assert [folder for folder in watched.listed if not folder.startswith((META_FOLDER, FOLDER))] == []


def test_some_file_groups_of_a_partition(tmp_path: Path) -> None:
    table = listed_by_metadata(HoodieTable.open(str(unpack("mor_v9_defaults", tmp_path))))
    view = table.view()
    for path in view.partitions():
        found = view.latest_merged_slices(path)
        assert view.latest_slices(path, [s.file_id for s in found[:1]]) == {s.file_id: s for s in found[:1]}


def test_a_table_without_one_is_listed_by_folders(tmp_path: Path) -> None:
    name = next(name for name in sorted(NAMES) if name not in WITH_METADATA)
    table = HoodieTable.open(str(unpack(name, tmp_path)))
    assert listed_by_metadata(table).view().listing is None


def test_a_task_lists_like_the_driver(tmp_path: Path) -> None:
    table = listed_by_metadata(HoodieTable.open(str(unpack("mor_v9_defaults", tmp_path))))
    sent: HoodieTable = pickle.loads(pickle.dumps(table))  # noqa: S301 -- made here
    assert sent.view().listing is not None
    assert slices(sent.view()) == slices(table.view())
    assert sent.reload().lister is not None


def test_a_look_at_the_same_state_looks_nothing_up_again(tmp_path: Path) -> None:
    table = listed_by_metadata(HoodieTable.open(str(unpack("mor_v9_defaults", tmp_path))))
    assert table.view().listing is table.view().listing
