"""Why one query ends and a new one starts: failures that a restart fixes, and changes of the schema.

A new query starts after index and table were made consistent again. The schema that the job writes is determined before
each query, and checked before each batch.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass

from tagstream.state.checkpoint import SCHEMAS
from tagstream.state.errors import IndexDamagedError
from tagstream.streaming.batch.context import JobContext
from tagstream.streaming.errors import (
    PartitionDepthError,
    SchemaChangedError,
    TableSeenError,
    TaskFileError,
    TopicChangedError,
)
from tagstream.streaming.job.failure import own_errors
from tagstream.streaming.job.schema_match import columns_left_null, evolution_rules, given_name, stream_schema
from tagstream.streaming.job.sink import BatchSink
from tagstream.streaming.recovery.same_source import take_table
from tagstream.streaming.source.source import SchemaNotes
from tagstream.streaming.source.transformation import source_schema
from tagstream.table.errors import (
    ConfigError,
    FileGoneError,
    ForeignCommitError,
    InstantConflictError,
    LockLostError,
    MissingSliceError,
    OverlapError,
    PendingClusteringError,
    SchemaRefusedError,
)
from tagstream.table.schema.evolve import EvolutionRules, evolve
from tagstream.table.schema.schema import avro_to_arrow

LOG = logging.getLogger("tagstream")


def schema_notes(job: JobContext) -> SchemaNotes:
    """The folder for schemas that the tasks of the next query find."""
    return SchemaNotes(job.schema_notes, str(job.run))


def take_notes(job: JobContext) -> None:
    """Add the schemas that the tasks of the ended query have found. They apply from the next query on."""
    found = schema_notes(job).read()
    job.noticed = tuple(dict.fromkeys([*job.noticed, *found]))


def forget_notes(job: JobContext) -> None:
    """Remove the schemas that earlier runs have stored: their batches are read again."""
    job.query_folder.files.delete_tree(SCHEMAS)


def look_at_schema(job: JobContext, *, again: bool = False) -> bool:
    """Use the schema that results from the table's schema, the given one and those of records. SchemaRefusedError where
    they do not fit.

    ``again``: two queries have ended for a schema change without a batch in between; ConfigError where no change is
    found. Returns True when a column has another type than in the table's files.
    """
    stamp = _stamp(job)
    avro_json, defaults_json = stream_schema(job.options, job.table, job.noticed)
    left_null = columns_left_null(job.options, avro_json)
    if left_null and (avro_json != job.avro_json or job.history.instant is None):
        LOG.warning(
            "table %s has columns that %s lacks (%s): they are kept, and are null in the rows that this job writes unless "
            "the records have them",
            job.table.base_path,
            given_name(job.options),
            ", ".join(left_null),
        )
    before, evolution = job.avro_json, evolution_rules(job.options, job.table.config, avro_json, defaults_json)
    if avro_json != before:
        told = evolve(avro_to_arrow(before), avro_to_arrow(avro_json), EvolutionRules(corrected=True), "").changes
        LOG.warning("table %s: the schema changes: %s", job.table.base_path, "; ".join(told) or "a default")
    elif again and defaults_json == job.decode.defaults_json and evolution == job.decode.evolution:
        raise ConfigError(
            f"{', '.join(dict.fromkeys(item.source for item in job.noticed)) or given_name(job.options)}: it differs from "
            "the table's schema, but no new column or type is found; the batch was not written. Set "
            "tagstream.schema.evolution=given to continue with the table's schema"
        )
    job.take_schema(avro_json, defaults_json, evolution)
    job.hooks.look_at_schema = _watch_file(job, stamp)
    written = job.table.schema_json()
    kinds = avro_to_arrow(avro_json)
    own = () if written is None else avro_to_arrow(written)
    return any(f.name in kinds.names and not kinds.field(f.name).type.equals(f.type) for f in own)


def _watch_file(job: JobContext, stamp: tuple[int, int] | None) -> Callable[[], None]:
    """A check of the schema file to run before each batch. It reads the file only when it was written to since
    ``stamp``.
    """
    seen = [stamp]

    def look() -> None:
        now = _stamp(job)
        if now is None or now == seen[0]:
            return
        seen[0] = now
        try:
            changed = _changed(job)
        except SchemaRefusedError:
            raise
        except ConfigError as e:  # perhaps it is only half written; it is read again when it is written to
            LOG.warning("%s; the job continues with the schema that it had", e)
            return
        if changed:
            raise SchemaChangedError(f"schema file {job.options.source.schema_file} was changed")

    return look


def _changed(job: JobContext) -> bool:
    """Whether the schema file has another schema. Of transformed records only the source's schema is compared, since
    only Spark can determine theirs.
    """
    if job.options.source.transformers:
        return source_schema(job.options) != job.options.source.transformed_from
    return stream_schema(job.options, job.table, job.noticed) != (job.avro_json, job.decode.defaults_json)


def _stamp(job: JobContext) -> tuple[int, int] | None:
    """Modification time and size of the schema file; None where there is none."""
    if job.options.source.schema_file is None:
        return None
    try:
        found = os.stat(job.options.source.schema_file.removeprefix("file://"))
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


_MOST_GONE = 5  # tries in which files were missing that another writer may have rolled back
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 30.0
_RESTARTED = (
    IndexDamagedError, MissingSliceError, OverlapError, ForeignCommitError, InstantConflictError, PendingClusteringError,
    PartitionDepthError, SchemaChangedError, TopicChangedError, TableSeenError, LockLostError, FileGoneError,
    TaskFileError,
)  # fmt: skip


@dataclass(frozen=True)
class Restart:
    """Why a query restarts. ``rebuild``: load the index from the table again. ``doubt``: the same, but only if the
    index lacks no commit of the table.

    ``error``: class of the error that ended the query. ``count``: restarts in a row without a batch in between.
    ``clustering``: the instant of a clustering to wait for.
    """

    why: str
    rebuild: bool
    count: int
    doubt: bool = False
    clustering: str | None = None
    error: str = ""

    @property
    def level(self) -> int:
        """Log level. It is normal that a new stream finds its table, so that is not a warning."""
        return logging.INFO if self.error == TableSeenError.__name__ else logging.WARNING

    @property
    def pause_s(self) -> float:
        """Seconds to wait before the next try, so that other writers can finish: 0 for the first, then doubling."""
        return 0.0 if self.count <= 1 else min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2.0 ** min(self.count - 2, 20))


def take_noticed(job: JobContext, why: str) -> None:
    """Store the schemas and the source table that the tasks of a query have found. ``why``: the text of the query's
    error.
    """
    take_table(job, why)
    take_notes(job)


def restart_after(error: Exception, sink: BatchSink, before: Restart | None) -> Restart | None:
    """Decide what to do after an error that ended the query. None where it is final, or where a new index load has not
    helped.

    Conflicts with other writers may repeat without a limit, and the pauses grow.
    """
    texts = dict(own_errors(error))
    name = next((kind.__name__ for kind in _RESTARTED if kind.__name__ in texts), None)
    if name is None:
        return None
    if sink.committed:
        before = None
    rebuild, doubt = name == IndexDamagedError.__name__, name == MissingSliceError.__name__
    if doubt and before is not None and before.doubt:
        rebuild, doubt = True, False  # the index has caught up with the table, and that has not helped
    if rebuild and before is not None and before.rebuild:
        return None
    count = 1 if before is None else before.count + 1
    if name == FileGoneError.__name__ and (count > _MOST_GONE or not sink.has_other_writers):
        return None
    if name == TaskFileError.__name__ and count > _MOST_GONE:
        return None
    clustering = sink.failure.instant if isinstance(sink.failure, PendingClusteringError) else None
    return Restart(texts[name] or str(error), rebuild, count, doubt, clustering, name)
