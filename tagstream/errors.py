"""Every error that Tagstream raises on purpose, for one import.

Each message says what is wrong, where (file, instant, key, offset) and what to do next. ``TagstreamError`` is their base.

>>> import tagstream
>>> try:
...     tagstream.open_table("/no/such/table")
... except tagstream.errors.TableNotFoundError as error:
...     print(type(error).__name__)
TableNotFoundError
"""

from __future__ import annotations

from tagstream.bootstrap.errors import BootstrapError, IndexCoverageError
from tagstream.index.errors import HbaseError, HbaseRowError, HbaseTableError, HbaseUnavailableError
from tagstream.state.errors import IndexDamagedError, LocalStoreError, LockedStoreError, StateError
from tagstream.streaming.errors import (
    BadRecordsError,
    CheckpointError,
    DeadLetterError,
    EnvironmentProblemError,
    HeldRowError,
    PartitionDepthError,
    SchemaChangedError,
    SourceError,
    StreamError,
)
from tagstream.table.errors import (
    CleanedPastError,
    ConfigError,
    CorruptFileError,
    ForeignCommitError,
    InstantConflictError,
    InvalidKeyError,
    InvalidPartitionPathError,
    LeaseLostError,
    MetadataCompactedError,
    MetadataTableMismatchError,
    MissingChangesError,
    MissingSliceError,
    PendingClusteringError,
    SchemaRefusedError,
    StaleVersionError,
    StoreError,
    TableConfigMismatchError,
    TableError,
    TableNotFoundError,
    TagstreamError,
    UnsupportedTableError,
)

__all__ = [
    "BadRecordsError",
    "BootstrapError",
    "CheckpointError",
    "CleanedPastError",
    "ConfigError",
    "CorruptFileError",
    "DeadLetterError",
    "EnvironmentProblemError",
    "ForeignCommitError",
    "HbaseError",
    "HbaseRowError",
    "HbaseTableError",
    "HbaseUnavailableError",
    "HeldRowError",
    "IndexCoverageError",
    "IndexDamagedError",
    "InstantConflictError",
    "InvalidKeyError",
    "InvalidPartitionPathError",
    "LeaseLostError",
    "LocalStoreError",
    "LockedStoreError",
    "MetadataCompactedError",
    "MetadataTableMismatchError",
    "MissingChangesError",
    "MissingSliceError",
    "PartitionDepthError",
    "PendingClusteringError",
    "SchemaChangedError",
    "SchemaRefusedError",
    "SourceError",
    "StaleVersionError",
    "StateError",
    "StoreError",
    "StreamError",
    "TableConfigMismatchError",
    "TableError",
    "TableNotFoundError",
    "TagstreamError",
    "UnsupportedTableError",
]
