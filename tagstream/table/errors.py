"""Errors of the table layer.

A message says what is wrong, where (file, instant, key) and what to do next. ``ValueError`` is for bad arguments of a
caller. An error has its own class only where a caller handles it differently.
"""

from __future__ import annotations


class TagstreamError(Exception):
    """Base class of all errors that this project raises on purpose."""


class ConfigError(TagstreamError):
    """An option or property is unknown, unsupported or has a value that cannot be used."""


DRIVER, WORKERS = "where the driver runs", "on every host that runs Spark's workers"


def missing_package(what: str, package: str, error: ImportError, extra: str, where: str) -> ConfigError:
    """The error for a package of an extra. ``what`` needs it; ``where`` it must be installed: DRIVER or WORKERS."""
    return ConfigError(
        f"{what}: the package {package} is missing ({error}); install it with pip install 'tagstream[{extra}]' (in a "
        f"checkout: pip install '.[{extra}]'), {where}"
    )


class SchemaRefusedError(ConfigError):
    """A schema change would lose values or move rows. It is not applied, and nothing was written."""


class StoreError(TagstreamError, OSError):
    """A storage (an object store, HDFS) failed to do what was requested; ``filename`` is the file."""

    def __str__(self) -> str:
        return f"{self.filename}: {self.strerror}"


class TableError(TagstreamError):
    """Base class of the errors about a Hudi table."""


class TableNotFoundError(TableError):
    """The path holds no Hudi table."""


class UnsupportedTableError(TableError):
    """The table is a valid one, but uses something this version cannot read or write."""


class TableConfigMismatchError(TableError):
    """The table's own properties contradict the options of the job."""


class InstantConflictError(TableError):
    """An instant file that must be new exists already: another writer or attempt created it first."""


class PlanOverlapError(InstantConflictError):
    """A write that came after an action was planned has changed a file group that the action would replace."""


class CorruptFileError(TableError):
    """A file's bytes do not follow the format."""


class FileGoneError(CorruptFileError):
    """A file was listed and does not exist any more: it is lost, or another writer has cleaned it or rolled it back."""


class CleanedPastError(TableError):
    """A read as of an earlier instant needs files that a clean has deleted."""


class MissingChangesError(TableError):
    """The changes of a write cannot be read: they were not logged, or the write is archived or its files are deleted."""


class InvalidPartitionPathError(TableError):
    """A partition path would leave the table's folder or cannot be a folder name."""


class InvalidKeyError(TableError):
    """A record has no usable record key."""


class LeaseLostError(TableError):
    """This process no longer holds the table's writer lease and must not publish."""


class LockError(TableError):
    """The lock of the table cannot be taken or asked about; ``may_pass``: the same call may succeed later."""

    def __init__(self, text: str, *, may_pass: bool = True) -> None:
        super().__init__(text)
        self.may_pass = may_pass


class LockTimeoutError(LockError):
    """Another writer had the lock of the table for longer than the options allow to wait."""


class LockLostError(LockError):
    """This process no longer has the lock of the table and must not publish."""

    def __init__(self, text: str) -> None:
        super().__init__(text, may_pass=False)


class ForeignCommitError(TableError):
    """Another writer has committed to the table since this writer last read the timeline."""


class OverlapError(ForeignCommitError):
    """The other writer's commit and this writer's batch may have changed the same rows."""


class StaleVersionError(TableError):
    """A compare-and-swap named a version that is no longer the newest: another process wrote first."""


class PendingClusteringError(TableError):
    """A batch has rows for a file group that another writer's pending clustering (``instant``) replaces."""

    def __init__(self, text: str, instant: str) -> None:
        super().__init__(text)
        self.instant = instant


class MissingSliceError(ForeignCommitError):
    """A file group that the index points to has no slice. Another writer replaced it, or index or table is damaged."""


class MetadataTableMismatchError(UnsupportedTableError):
    """The metadata table has another version than its table. Drop it before the table is written."""


class MetadataCompactedError(TableError):
    """The metadata table has compacted what a rollback would undo. Drop it and build it again."""
