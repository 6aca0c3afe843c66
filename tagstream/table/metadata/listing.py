"""The files of a table as its metadata table lists them: no folder of the table is listed.

What an action wrote counts once it is completed, so files of unfinished and failed writes are not among them; those of the
metadata table's own folders are still listed, one folder for each of its partitions that is read.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from tagstream.table.errors import MetadataTableMismatchError, TableNotFoundError, UnsupportedTableError
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.metadata.metadata_table import FILES_PARTITION, MetadataTable
from tagstream.table.timeline.timeline import Timeline

_SEEN_TABLES = 4


@dataclass(frozen=True)
class MetadataListing:
    """A ``table.file_group.fs_view.Listing`` out of the partition ``files``; each partition is looked up once."""

    metadata: MetadataTable
    _known: dict[str, Mapping[str, int]] = field(default_factory=dict, compare=False, repr=False)
    _partitions: list[list[str]] = field(default_factory=list, compare=False, repr=False)

    def partitions(self) -> list[str]:
        """All partition paths, sorted."""
        if not self._partitions:
            self._partitions.append(self.metadata.partition_paths())
        return list(self._partitions[0])

    def look_up(self, partition_paths: Collection[str]) -> None:
        """Look up several partitions at once, which costs little more than one."""
        missing = [path for path in partition_paths if path not in self._known]
        if missing:
            self._known.update(self.metadata.files_of(missing))

    def files(self, partition_path: str) -> Mapping[str, int]:
        """Sizes in bytes of the files of a partition, by name."""
        self.look_up([partition_path])
        return self._known[partition_path]


def listed_by_metadata(table: HoodieTable) -> HoodieTable:
    """The same table, whose views list through its metadata table where it has one that readers trust."""
    return replace(table, lister=metadata_listing)


def metadata_listing(table: HoodieTable, timeline: Timeline) -> MetadataListing | None:
    """The listing of a table as of a look at its timeline; None where its metadata table has none that readers trust.

    A table that is looked at again in the same state gives the same listing, with what it has looked up.
    """
    try:
        metadata = MetadataTable.open(table, timeline)
    except (MetadataTableMismatchError, TableNotFoundError):
        return None  # no reader uses such a one; the writer drops it, with a warning
    if metadata is None or FILES_PARTITION not in metadata.partitions:
        return None
    found = next((seen for seen in _SEEN if _same(seen.metadata, metadata)), None)
    if found is None:
        found = MetadataListing(metadata)
        try:
            found.partitions()
        except UnsupportedTableError:
            return None  # its files are of a kind that is not read: the folders say the same
        _SEEN[:] = [*(seen for seen in _SEEN if seen.metadata.storage != metadata.storage), found][-_SEEN_TABLES:]
    return found


# The last listing of a few tables.
_SEEN: list[MetadataListing] = []


def _same(one: MetadataTable, other: MetadataTable) -> bool:
    return (one.storage, one.timeline, one.data_timeline) == (other.storage, other.timeline, other.data_timeline)
