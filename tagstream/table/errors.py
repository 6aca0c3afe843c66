"""Errors of the table layer.

Every message says what is wrong, where (file, instant, key) and what to do next. ``ValueError`` is left for bad
arguments of a caller; a class of its own exists only where a caller acts differently on it.
"""

from __future__ import annotations


class TagstreamError(Exception):
    """Root of every error this project raises on purpose."""


class ConfigError(TagstreamError):
    """An option or property is unknown, unsupported or has a value that cannot be used."""


class SchemaRefusedError(ConfigError):
    """A change of schema that would lose values, or move rows: it is not taken up, and nothing was written."""


class StoreError(TagstreamError, OSError):
    """A store of files (an object store, HDFS) did not do what was asked; ``filename`` says of which file."""

    def __str__(self) -> str:
        return f"{self.filename}: {self.strerror}"


class TableError(TagstreamError):
    """Root of the errors about a Hudi table."""


class TableNotFoundError(TableError):
    """The path holds no Hudi table."""


class UnsupportedTableError(TableError):
    """The table is a valid one, but uses something this version cannot read or write."""


class TableConfigMismatchError(TableError):
    """The table's own properties contradict the options of the job."""


class InstantConflictError(TableError):
    """An instant file that must be new exists already: another writer or attempt was first."""


class CorruptFileError(TableError):
    """A file's bytes do not follow the format."""


class CleanedPastError(TableError):
    """A read as of an earlier instant whose files a clean has deleted."""


class InvalidPartitionPathError(TableError):
    """A partition path would leave the table's folder or cannot be a folder name."""


class InvalidKeyError(TableError):
    """A record has no usable record key."""


class LeaseLostError(TableError):
    """This process does not hold the table's writer lease any more: it must not publish."""


class ForeignCommitError(TableError):
    """Another writer committed to the table since this one looked."""


class StaleVersionError(TableError):
    """A compare-and-swap named a version that is not the newest any more: another process wrote first."""


class PendingClusteringError(TableError):
    """A batch has rows for a file group that another writer's pending clustering (``instant``) is moving elsewhere."""

    def __init__(self, text: str, instant: str) -> None:
        super().__init__(text)
        self.instant = instant


class MissingSliceError(ForeignCommitError):
    """A file group that the index has rows in has no slice: another writer replaced it, or index or table is damaged."""


class MetadataTableMismatchError(UnsupportedTableError):
    """The metadata table is not of its table's version: it must be dropped before the table is written."""


class MetadataCompactedError(TableError):
    """The metadata table has compacted what a rollback would take back: it must be dropped and built anew."""
