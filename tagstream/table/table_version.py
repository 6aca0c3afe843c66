"""The capabilities of each version of Hudi's table format. A new version is one more entry.

Code asks for a capability by its name and compares no version numbers. Hudi 0.15.0 writes version 6, 1.0.2 writes version 8,
1.1 and 1.2.0 write version 9. The values come from tables that these releases wrote.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from tagstream.table.errors import UnsupportedTableError


@dataclass(frozen=True)
class TableVersion:
    """The capabilities of one table version (``hoodie.table.version``)."""

    number: int

    # Timeline: hoodie.timeline.layout.version; whether the file name of a completed instant has its completion time (file
    # slices are then ordered by completion time); whether log files have the instant of their delta commit (from version 8
    # on) or that of their file slice (before).
    layout: int
    timeline_folder: str
    has_completion_times: bool
    names_logs_by_commit: bool

    # Table properties: the name of the one for the ordering fields; whether only classes (key generator, payload) say how
    # keys are made and rows merged; whether the payload class is written in addition to the merge mode.
    ordering_property: str
    names_classes: bool
    names_payload: bool

    # Rows: several ordering fields; kinds (SIMPLE, TIMESTAMP) of the partition fields of the custom key generator; whether
    # partition columns that rows in logs lack are read from the path; whether every reader merges the logs of a slice with
    # a pending compaction; whether the complex key generator writes the key of one field without its name.
    several_ordering_fields: bool
    partition_kinds: bool
    drops_columns_of_logs: bool
    reads_pending_compactions: bool
    key_alone: bool

    # Metadata table: whether a new table gets one, with column statistics; a record index by partition; a file of index
    # definitions; whether the statistics of a deleted file are deleted or marked as deleted; how many entries a bloom
    # filter of its base files is sized for; the form of new statistics; whether decimals of more than 15 digits have ranges.
    metadata_by_default: bool
    partitioned_record_index: bool
    index_definitions: bool
    deletes_statistics: bool
    key_filter_entries: int
    statistics_form: str
    wide_decimal_statistics: bool

    @staticmethod
    def of(number: int) -> TableVersion:
        """The version with this number; UnsupportedTableError for an unknown one."""
        if number not in VERSIONS:
            raise UnsupportedTableError(f"table version {number} is not known; {listed_versions()} are")
        return VERSIONS[number]


_6: Final = TableVersion(
    number=6,
    layout=1,
    has_completion_times=False,
    timeline_folder=".hoodie",
    ordering_property="hoodie.table.precombine.field",
    names_logs_by_commit=False,
    names_classes=True,
    names_payload=True,
    several_ordering_fields=False,
    partition_kinds=False,
    drops_columns_of_logs=False,
    reads_pending_compactions=False,
    key_alone=False,
    metadata_by_default=False,
    partitioned_record_index=False,
    index_definitions=False,
    deletes_statistics=False,
    key_filter_entries=60_000,
    statistics_form="V1",
    wide_decimal_statistics=False,
)
_8: Final = replace(
    _6,
    number=8,
    layout=2,
    has_completion_times=True,
    timeline_folder=".hoodie/timeline",
    names_logs_by_commit=True,
    names_classes=False,
    several_ordering_fields=True,
    partition_kinds=True,
    drops_columns_of_logs=True,
    reads_pending_compactions=True,
    metadata_by_default=True,
    partitioned_record_index=True,
    index_definitions=True,
    deletes_statistics=True,
    key_filter_entries=10_000,
)
_9: Final = replace(
    _8,
    number=9,
    ordering_property="hoodie.table.ordering.fields",
    names_payload=False,
    key_alone=True,
    statistics_form="V2",
    wide_decimal_statistics=True,
)
VERSIONS: Final = {version.number: version for version in (_6, _8, _9)}


def listed_versions(*, last: str = "and", having: Callable[[TableVersion], bool] = lambda _version: True) -> str:
    """The known numbers as a phrase: ``6, 8 and 9``. ``last`` is the last conjunction; ``having`` selects the versions."""
    *others, newest = [str(number) for number, version in sorted(VERSIONS.items()) if having(version)]
    return f"{', '.join(others)} {last} {newest}" if others else newest
