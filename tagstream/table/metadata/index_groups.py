"""The file groups of a record index: by number, or by partition of the data and number.

A global record index has ``record-index-<number>-0``, and a key's group is a hash of it over all of them. Since Hudi 1.1
there is one with groups for each partition of the data, ``record-index-<partition>-<number>-0``, each partition with a
number of its own: the hash goes over those. In the name a partition's path has Hive's escapes, and ``-`` and ``_`` are
escaped too, so that a name with four ``-`` is of this form (seen in tables of Hudi 1.2.0; escapes as its
``PartitionPathEncodeUtils.escapeFileName`` gives them). Hudi leaves a dot as it is and then does not find the group any
more, as its pattern for names of log files allows none: here it is escaped, which Hudi's own reading undoes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final
from urllib.parse import unquote

import pyarrow as pa

from tagstream.table.errors import CorruptFileError, UnsupportedTableError
from tagstream.table.file_group.file_group import FileSlice
from tagstream.table.keys.partition_path import url_encode

PREFIX: Final = "record-index"

_GLOBAL: Final = re.compile(rf"{PREFIX}-(\d+)-\d+")
_PARTITIONED: Final = re.compile(rf"{PREFIX}-([^-_]*)-(\d+)-\d+")
_MORE_ESCAPES: Final = {ord("-"): "%2D", ord("_"): "%5F", ord("."): "%2E"}
_LONGEST: Final = 200  # bytes of a file group's name, beside which a file's name has an instant and a write token


@lru_cache(4096)
def index_group_name(data_partition: str, number: int) -> str:
    """File id of a group for one partition of the data; UnsupportedTableError where no file could have that name."""
    escaped = url_encode(pa.array([data_partition]))[0].as_py().translate(_MORE_ESCAPES)
    name = f"{PREFIX}-{escaped}-{number:04d}-0"
    if len(name.encode()) > _LONGEST:
        raise UnsupportedTableError(
            f"the partition {data_partition[:80]!r} has too long a path for a record index by partition, whose files have "
            "it in their names: make the global one (hoodie.metadata.global.record.level.index.enable), or none"
        )
    return name


@dataclass(frozen=True)
class IndexGroups:
    """The newest slices of a record index by the numbers of their groups.

    ``by_partition``: those of each partition of the data that has some; under None those of a global index.
    """

    is_partitioned: bool
    by_partition: Mapping[str | None, tuple[FileSlice, ...]]

    @property
    def counts(self) -> dict[str | None, int]:
        """How many groups there are for each partition of the data."""
        return {partition: len(slices) for partition, slices in self.by_partition.items()}

    @staticmethod
    def of(slices: Iterable[FileSlice], where: str, *, is_partitioned: bool) -> IndexGroups:
        """Sort slices by their names. All must be there, for a key's group depends on how many: else CorruptFileError."""
        found: dict[str | None, dict[int, FileSlice]] = {} if is_partitioned else {None: {}}
        for each in slices:
            match = (_PARTITIONED if is_partitioned else _GLOBAL).fullmatch(each.file_id)
            if match is None:
                raise CorruptFileError(
                    f"the record index at {where} has the file group {each.file_id}, but by its definition "
                    f"{'one for each partition' if is_partitioned else 'a global one'} has no such name; drop the "
                    "metadata table (hoodie.metadata.enable=false) or let Hudi build it anew"
                )
            partition = unquote(match[1]) if is_partitioned else None
            found.setdefault(partition, {})[int(match[2 if is_partitioned else 1])] = each
        for partition, by_number in found.items():
            if not by_number or sorted(by_number) != list(range(len(by_number))):
                raise CorruptFileError(
                    f"the record index at {where} has the shards {sorted(by_number)}"
                    f"{f' of partition {partition!r}' if partition is not None else ''}, others are missing; "
                    "drop the metadata table (hoodie.metadata.enable=false) or let Hudi build it anew"
                )
        rows = {partition: tuple(own[number] for number in range(len(own))) for partition, own in found.items()}
        return IndexGroups(is_partitioned, rows)
