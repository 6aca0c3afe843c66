"""Errors of the streaming job that a person or a caller can act on."""

from __future__ import annotations

from tagstream.table.errors import TagstreamError


class StreamError(TagstreamError):
    """Base class of the streaming job's errors."""


class CheckpointError(StreamError):
    """Checkpoint and table do not belong together, or a checkpoint file is damaged."""


class BadRecordsError(StreamError):
    """More bad records than ``--commit-on-errors`` and ``--max-bad-records`` allow. They are in the quarantine."""


class DeadLetterError(StreamError):
    """Bad records could not be written to their table or topic. The quarantine has them."""


class HeldRowError(StreamError):
    """A record lacks values that were not sent, and the row that had them does not exist any more."""


class PartitionDepthError(StreamError):
    """The first batch of a table has partition paths of different depths. The depth for the table is known now."""


class SchemaChangedError(StreamError):
    """Records, or the schema file, have fields that the table's schema lacks. The batch runs again with another schema."""


class SourceError(StreamError):
    """The source cannot be read: broker unreachable, topic or folder missing, connector jar missing."""


class TaskFileError(StreamError):
    """Rows that one step of a batch left for the next one are gone. The batch runs again."""


class TableSeenError(StreamError):
    """The first records of a stream name their table. The batch runs again and takes only records of this table."""


class TopicChangedError(SourceError):
    """The topic was deleted and created again under the same name while the stream read it."""


class EnvironmentProblemError(StreamError):
    """The machine lacks what the job needs: Java, a writable folder, a Spark master that answers."""


class LastingError(StreamError):
    """A fault that no restart corrects: a person must change the machine, a permission, or a path. Exit code 3."""


class UnfitMachineError(EnvironmentProblemError, LastingError):
    """No Java or a wrong one, incompatible versions, or a folder that is not writable."""


class SourcePlaceError(SourceError, LastingError):
    """The source's path cannot be read: a file where a folder is expected, or no permission to read it."""


class StopRequested(StreamError):
    """The job was asked to stop when a new batch had just begun. Nothing of this batch was written."""
