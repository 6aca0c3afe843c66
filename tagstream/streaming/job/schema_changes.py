"""The schema that the job writes, looked at before each query and asked about before each batch."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable

from tagstream.state.durable.root import SCHEMAS
from tagstream.streaming.batch.context import JobContext
from tagstream.streaming.errors import SchemaChangedError
from tagstream.streaming.source.schema_notes import SchemaNotes
from tagstream.streaming.source.transform.stage import source_schema
from tagstream.streaming.start.schema_match import columns_left_null, evolution_rules, given_name, stream_schema
from tagstream.table.errors import ConfigError, SchemaRefusedError
from tagstream.table.schema.evolve import EvolutionRules, evolve
from tagstream.table.schema.schema import avro_to_arrow

LOG = logging.getLogger("tagstream")


def schema_notes(job: JobContext) -> SchemaNotes:
    """The notes of the query that is about to start."""
    return SchemaNotes(job.schema_notes, str(job.run))


def take_notes(job: JobContext) -> None:
    """Keep the schemas that the tasks of the query that has ended have noticed; they count from the next query on."""
    found = schema_notes(job).read()
    job.noticed = tuple(dict.fromkeys([*job.noticed, *found]))


def forget_notes(job: JobContext) -> None:
    """Remove what runs before have left: their batches are read again."""
    job.root.files.delete_tree(SCHEMAS)


def look_at_schema(job: JobContext, *, again: bool = False) -> bool:
    """Take up what the table's schema, the given one and those of records make together; SchemaRefusedError as of there.

    True when a type is another than that of the table's files.

    ``again``: two queries have ended for a change without a batch between; ConfigError where there is none to be made.
    """
    stamp = _stamp(job)
    avro_json, defaults_json = stream_schema(job.options, job.table, job.noticed)
    left_null = columns_left_null(job.options, avro_json)
    if left_null and (avro_json != job.avro_json or job.instant is None):
        LOG.warning(
            "table %s has columns that %s lacks (%s): they stay, and are null in the rows that this job writes unless the "
            "records have them",
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
            f"{', '.join(dict.fromkeys(item.source for item in job.noticed)) or given_name(job.options)}: what it has more "
            "than the table cannot be made out; nothing of the batch was written. Give tagstream.schema.evolution=given to "
            "go on with the table's schema"
        )
    job.take_schema(avro_json, defaults_json, evolution)
    job.look_at_schema = _watch_file(job, stamp)
    written = job.table.schema_json()
    kinds = avro_to_arrow(avro_json)
    own = () if written is None else avro_to_arrow(written)
    return any(f.name in kinds.names and not kinds.field(f.name).type.equals(f.type) for f in own)


def _watch_file(job: JobContext, stamp: tuple[int, int] | None) -> Callable[[], None]:
    """What looks at the schema file before a batch: only when it was written to since ``stamp``."""
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
        except ConfigError as e:  # half written, perhaps; looked at again when it is written to
            LOG.warning("%s; the job goes on with the schema that it had", e)
            return
        if changed:
            raise SchemaChangedError(f"schema file {job.options.schema_file} was changed")

    return look


def _changed(job: JobContext) -> bool:
    """Whether the schema file says something else; where records are transformed, what comes of it only Spark can tell."""
    if job.options.transformers:
        return source_schema(job.options) != job.options.transformed_from
    return stream_schema(job.options, job.table, job.noticed) != (job.avro_json, job.decode.defaults_json)


def _stamp(job: JobContext) -> tuple[int, int] | None:
    """Modification time and size of the schema file; None where there is none."""
    if job.options.schema_file is None:
        return None
    try:
        found = os.stat(job.options.schema_file.removeprefix("file://"))
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
