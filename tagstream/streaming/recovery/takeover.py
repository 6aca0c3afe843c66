"""Which index load a query uses, where a new query starts, and what remains of retired queries.

``R/tagstream/takeover/<number>.json`` is written in the query's folder ``R`` after the index load with that
number is complete. A folder without such a file uses number 0, the index that began empty. The greatest number counts.
So a file that a paused and replaced driver writes later does not affect its successor. Earlier versions of the program
wrote one file, ``R/tagstream/takeover.json``.

The index of a retired query is as large as the live one, and no later start uses it, so it is removed. Small files and
files that cannot be made again stay: offsets and commits, ``why.txt``, the quarantine. The index of the query that was
retired last stays, too, so that its problem can be examined.

A new query folder replaces the old one and no file is moved (``state.checkpoint``). An earlier program version moved a
retired query's files to the checkpoint's folder ``retired/<n>/``. When such a version was interrupted, the
retirement is finished here: moved and not yet moved files stay where they are.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from pyspark.sql import SparkSession

from tagstream.state.checkpoint import BEGINS, INDEX, TAKEOVER, QueryFolder, current_query_folder, next_query_folder
from tagstream.streaming.batch.commit_record import STREAMER_KEY, all_extra_metadata, parse
from tagstream.streaming.batch.context import JobContext
from tagstream.streaming.errors import CheckpointError, SourceError
from tagstream.streaming.recovery.same_source import read_kept, recreated, refuse_loss, to_keep
from tagstream.streaming.source.kafka_topic import EARLIEST, Ends, topic_offsets
from tagstream.table.storage.storage import Storage, create
from tagstream.table.stored_names import from_stored, to_stored
from tagstream.table.timeline.timeline import Timeline

LOG = logging.getLogger("tagstream")
_MARKER = "tagstream/retiring.json"
_STATE = "state"  # Spark's state stores, next to the index in a query's folder
_QUERY_FOLDERS = "tagstream/roots"
_MOVED = "retired"  # the folder of retired queries of an earlier program version
_RESUME = "tagstream/resume.json"
_FIXED_PLACE = "sources/0/0"  # Spark's own
_VERSION = 2
_RESUME_VERSION = 1
_BEGINS_VERSION = 1


def finish_retiring(checkpoint: Storage) -> QueryFolder:
    """The query folder to use: a new one where an earlier program version was interrupted while it retired folder 0.

    CheckpointError where the file of that retirement is damaged.
    """
    query_folder = current_query_folder(checkpoint)
    try:
        why = str(json.loads(checkpoint.read(_MARKER))["why"])
    except FileNotFoundError:
        return query_folder
    except (ValueError, KeyError, TypeError) as e:
        raise CheckpointError(
            f"{checkpoint.where(_MARKER)} is damaged ({e!r}); remove the checkpoint and start with a new one"
        ) from e
    if query_folder.number == 0:
        query_folder = next_query_folder(checkpoint, query_folder, why)
    checkpoint.delete(_MARKER)
    return query_folder


def prune_retired(checkpoint: Storage, query_folder: QueryFolder) -> list[str]:
    """Delete the indexes of all retired queries except the last one. Returns the folders of these queries, oldest
    first.

    Nothing is deleted before the query in ``query_folder`` has committed a batch.
    """
    if query_folder.number == 0 or not any(name.isdigit() for name in query_folder.files.names("commits")):
        return []
    moved = sorted(int(name) for name in checkpoint.names(_MOVED) if name.isdigit())
    numbers = sorted(int(name) for name in checkpoint.names(_QUERY_FOLDERS) if name.isdigit())
    retired = [f"{_MOVED}/{n}" for n in moved] + [
        "",
        *(f"{_QUERY_FOLDERS}/{n}" for n in numbers if n < query_folder.number),
    ]
    pruned = []
    for folder in retired[:-1]:
        large = [f"{folder}/{name}".removeprefix("/") for name in (INDEX, _STATE)]
        there = [name for name in large if checkpoint.exists(name)]
        for name in there:
            checkpoint.delete_tree(name)
        if there:
            pruned.append(folder)
    return pruned


@dataclass(frozen=True)
class QueryIndexLoad:
    """The number of the index load that a query uses. Its covered commits are in
    ``state.index_loads.IndexLoadMarker.covered``.
    """

    index_load: int


def read_query_index_load(query_folder: Storage) -> QueryIndexLoad | None:
    """Read which index load the query uses; None when its index began empty."""
    numbers = [
        int(name.removesuffix(".json")) for name in query_folder.names(TAKEOVER) if name.removesuffix(".json").isdigit()
    ]
    name = f"{TAKEOVER}/{max(numbers)}.json" if numbers else f"{TAKEOVER}.json"
    return read_kept(query_folder, name, _VERSION, lambda doc: QueryIndexLoad(**from_stored(doc)))


def write_query_index_load(query_folder: Storage, query_index_load: QueryIndexLoad) -> None:
    """Store which index load the query uses."""
    create(
        query_folder,
        f"{TAKEOVER}/{query_index_load.index_load}.json",
        to_keep(_VERSION, **to_stored(asdict(query_index_load))),
    )


def write_resume(checkpoint: Storage, start_offsets: Any) -> None:
    """Store the offsets where the next query must start, because another writer removed the rows of the records after
    them.
    """
    checkpoint.replace(_RESUME, to_keep(_RESUME_VERSION, start_offsets=start_offsets))


def forget_resume(checkpoint: Storage) -> None:
    """Remove these offsets. Called when the query that started there has planned its first batch."""
    checkpoint.delete(_RESUME)


def read_resume(checkpoint: Storage) -> Any:
    """The offsets that the next query must start at; None where none are stored."""
    # A new checkpoint would start after the records of the removed rows.
    return read_kept(checkpoint, _RESUME, _RESUME_VERSION, lambda doc: doc["start_offsets"], cure="restore it")


def write_begins(query_folder: Storage, instant: str | None) -> None:
    """Store the commit at whose end a new query starts to read; None where it does not start at a commit's end.

    Spark fixes the starting offsets at the query's first trigger, and they never change afterwards. When the commit is
    undone, its records come before these offsets, so the query cannot continue.
    """
    if query_folder.exists(_FIXED_PLACE):
        return
    if instant is None:
        query_folder.delete(BEGINS)
    else:
        query_folder.replace(BEGINS, to_keep(_BEGINS_VERSION, after=instant))


def read_begins(query_folder: Storage) -> str | None:
    """The commit at whose end the query started to read; None where it did not start at a commit's end."""
    return read_kept(query_folder, BEGINS, _BEGINS_VERSION, lambda doc: str(doc["after"]))


def starting_offsets(job: JobContext, spark: SparkSession, timeline: Timeline) -> tuple[str | None, str | None]:
    """Where a new query starts: the newest commit of this stream (by this project or HoodieStreamer), and its end
    offsets as Spark's JSON.

    Both are None for files and DataFrames, and where no commit has offsets, with a warning. The commit alone is None
    where rows are read again that another writer removed. The offsets name every partition of the topic, as Spark
    requires. Partitions that the commit does not have are read from their beginning. SourceError when the topic ends
    before the offsets.
    """
    if job.options.source.kind == "frame":
        LOG.warning(
            "checkpoint %s is new, and table %s has commits: the stream starts where the options of its DataFrame's readers "
            "say; records that the table already has are late or change nothing",
            job.env.checkpoint.root,
            job.table.base_path,
        )
        return None, None
    if job.options.source.kind != "kafka" or job.options.run.bootstrap_only:
        return None, None
    topic = job.options.kafka.topic
    assert topic is not None
    resume = read_resume(job.env.checkpoint)
    if resume == {}:
        return None, "earliest"  # the stream's first batch is read again
    newest = _read_up_to(job, timeline, topic)
    found = newest if resume is None else (None, _offsets_of(resume, topic), None if newest is None else newest[2])
    if found is not None:
        instant, read, read_id = found
        why = recreated(job, read_id)
        if why is not None:
            refuse_loss(job, why)
            LOG.warning("%s. The new topic is read from its beginning", why)
            return None, "earliest"
        there = topic_offsets(spark, topic, job.options.kafka.consumer)
        return instant, json.dumps({topic: {str(p): at for p, at in _resumed(job, topic, read, there).items()}})
    LOG.warning(
        "no commit of table %s has the offsets of stream %s: reading from %s",
        job.table.base_path,
        job.env.meta.stream_id,
        job.options.kafka.starting_offsets,
    )
    return None, None


def _read_up_to(job: JobContext, timeline: Timeline, topic: str) -> tuple[str, dict[int, int], str | None] | None:
    """The newest commit of the stream, the next offset of every partition after it, and the topic's id then (None:
    unknown).

    None where no commit has offsets. SourceError where the stream has read another topic.
    """
    for time, extra in all_extra_metadata(job.table, timeline):
        record = parse(extra)
        if record is not None and record.stream_id == job.env.meta.stream_id:
            if topic not in record.end_offsets:
                raise SourceError(
                    f"stream {record.stream_id} of table {job.table.base_path} has read topic "
                    f"{', '.join(record.end_offsets)}, but the job reads {topic}: correct "
                    "hoodie.streamer.source.kafka.topic, or give the new stream another name "
                    "(hoodie.datasource.write.streaming.checkpoint.identifier)"
                )
            return time, _offsets_of(record.end_offsets, topic), record.topic_id
        name, *parts = extra.get(STREAMER_KEY, "").split(",")
        if record is None and parts and name == topic:
            return time, {int(p): int(offset) for p, _, offset in (part.partition(":") for part in parts)}, None
    return None


def _offsets_of(offsets: Any, topic: str) -> dict[int, int]:
    return {int(p): int(offset) for p, offset in offsets[topic].items()}


def _resumed(job: JobContext, topic: str, read: Mapping[int, int], there: Mapping[int, Ends]) -> dict[int, int]:
    """Where reading continues in each partition. Partitions that are new or have lost records are read from their
    beginning.
    """
    lost = dict.fromkeys(sorted(read.keys() - there.keys()), "does not exist any more")
    for p in sorted(read.keys() & there.keys()):
        if read[p] > there[p].latest:
            lost[p] = f"ends at {there[p].latest}, but was read up to {read[p]}"
        elif read[p] < there[p].earliest:
            lost[p] = f"begins at {there[p].earliest}, but was read up to {read[p]}"
    if lost:
        what = (
            f"table {job.table.base_path} has read topic {topic} up to offsets that the topic does not have any more: "
            f"{'; '.join(f'partition {p} {why}' for p, why in lost.items())}. It was created again, or its records expired"
        )
        if job.options.kafka.fail_on_data_loss:
            raise SourceError(
                f"{what}. Restore the records, or accept that records which were not read are lost with "
                "hoodie.streamer.source.kafka.enable.failOnDataLoss=false: the partitions are then read from their beginning"
            )
        LOG.warning("%s. They are read from their beginning", what)
    new = sorted(there.keys() - read.keys())
    if new:
        LOG.info("topic %s has new partitions (%s): read from their beginning", topic, ", ".join(map(str, new)))
    return {p: EARLIEST if p in lost or p not in read else read[p] for p in sorted(there)}
