"""Operation types of writes, as commits and plans name them (Hudi's ``WriteOperationType``)."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class WriteOperationType(StrEnum):
    """Those that this project writes or looks for. A commit of another writer may have any other."""

    UNKNOWN = "UNKNOWN"
    INSERT = "INSERT"
    INSERT_PREPPED = "INSERT_PREPPED"
    UPSERT = "UPSERT"
    BULK_INSERT = "BULK_INSERT"
    BULK_INSERT_PREPPED = "BULK_INSERT_PREPPED"
    DELETE = "DELETE"
    DELETE_PREPPED = "DELETE_PREPPED"
    DELETE_PARTITION = "DELETE_PARTITION"
    INSERT_OVERWRITE = "INSERT_OVERWRITE"
    INSERT_OVERWRITE_TABLE = "INSERT_OVERWRITE_TABLE"
    CLUSTER = "CLUSTER"
    COMPACT = "COMPACT"
    LOG_COMPACT = "LOG_COMPACT"


# Rows stay in their file groups, but in other files.
COMPACTIONS: Final = frozenset({WriteOperationType.COMPACT, WriteOperationType.LOG_COMPACT})
# Rows are written again, or nothing is written, and no row changes.
WITHOUT_CHANGES: Final = frozenset({
    *COMPACTIONS, WriteOperationType.CLUSTER, "INDEX", "BUCKET_RESCALE", "ALTER_SCHEMA",
})  # fmt: skip
# What a stream appends with: no key is looked up, and no row is updated or deleted.
APPENDS: Final = frozenset({WriteOperationType.INSERT, WriteOperationType.BULK_INSERT})
# Rows of whole partitions, or of the table, are replaced.
OVERWRITES: Final = frozenset({WriteOperationType.INSERT_OVERWRITE, WriteOperationType.INSERT_OVERWRITE_TABLE})
DELETES: Final = frozenset({WriteOperationType.DELETE, WriteOperationType.DELETE_PREPPED})
# Rows came, and none was updated or deleted.
INSERTS: Final = frozenset({
    WriteOperationType.INSERT, WriteOperationType.INSERT_PREPPED,
    WriteOperationType.BULK_INSERT, WriteOperationType.BULK_INSERT_PREPPED,
})  # fmt: skip
