"""Errors of the streaming job that a person or a caller can act on."""

from __future__ import annotations

from tagstream.table.errors import TagstreamError


class StreamError(TagstreamError):
    """Root of the streaming job's errors."""


class CheckpointError(StreamError):
    """Checkpoint and table do not belong together, or a checkpoint file is damaged."""


class BadRecordsError(StreamError):
    """More bad records than ``--commit-on-errors`` and ``--max-bad-records`` allow; they are in the quarantine."""


class DeadLetterError(StreamError):
    """Bad records could not be put into their table or topic of their own; the quarantine has them."""


class HeldRowError(StreamError):
    """A record lacks values that were not sent, and the row that had them is gone."""


class PartitionDepthError(StreamError):
    """The first batch of a table has partition paths of different depth; what is taken for the table's is known now."""


class SchemaChangedError(StreamError):
    """Records, or the schema file, have what the table's schema lacks: the batch is done again with another schema."""


class SourceError(StreamError):
    """The source can't be read: broker unreachable, topic or folder missing, connector jar missing."""


class TableSeenError(StreamError):
    """The first records of a stream say which table they are of: the batch is done again, and takes no other's."""


class TopicChangedError(SourceError):
    """The topic was deleted and created again under its name while the stream read it."""


class EnvironmentProblemError(StreamError):
    """The machine lacks what the job needs: Java, a folder it may write to, a Spark master that answers."""


class LastingError(StreamError):
    """A fault that no restart cures: a person must change the machine, a right, or a place. Exit code 3."""


class UnfitMachineError(EnvironmentProblemError, LastingError):
    """No Java or a wrong one, versions that do not go together, a folder that may not be written."""


class SourcePlaceError(SourceError, LastingError):
    """The source's place is not one that can be read: a file in the place of a folder, no right to read it."""


class StopRequested(StreamError):
    """The job was asked to end and a new batch has just begun; nothing of it was written."""
