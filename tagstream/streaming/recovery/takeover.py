"""Which generation of the index a query works on, where a new query starts, and what retired queries leave.

``R/tagstream/takeover/<generation>.json`` is written in the root of the query after the generation is complete; a
root without one works on generation 0, the index that began empty. The greatest counts: what a driver writes that
was paused and has been succeeded meanwhile changes nothing for its successor. Earlier versions of the program
wrote one file, ``R/tagstream/takeover.json``.

The index of a retired query is as large as the live one, and no start uses it again, so it is removed. What is
small or cannot be made again stays: offsets and commits, ``why.txt``, the quarantine. The index of the query that
was retired last stays, too, for people who want to see what was wrong.

Today a new root replaces the old one and nothing is moved (``state.checkpoint``). An earlier program version
moved a retired query's files to ``C/retired/<n>/``. A retiring that such a version began is finished here: what it
had moved, and what it had not, both stay where they are.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from pyspark.sql import SparkSession

from tagstream.state.checkpoint import BEGINS, INDEX, TAKEOVER, Root, current_root, next_root
from tagstream.streaming.batch.commit_record import STREAMER_KEY, all_extra_metadata, parse
from tagstream.streaming.batch.context import JobContext
from tagstream.streaming.errors import CheckpointError, SourceError
from tagstream.streaming.recovery.same_source import read_kept, recreated, refuse_loss, to_keep
from tagstream.streaming.source.kafka_topic import EARLIEST, Ends, topic_offsets
from tagstream.table.storage.storage import Storage, create
from tagstream.table.timeline.timeline import Timeline

_MARKER = "tagstream/retiring.json"


def finish_retiring(checkpoint: Storage) -> Root:
    """The root to go on at: a new one where a retiring was begun and never finished, which was always one of root 0."""
    root = current_root(checkpoint)
    try:
        why = str(json.loads(checkpoint.read(_MARKER))["why"])
    except FileNotFoundError:
        return root
    except (ValueError, KeyError, TypeError) as e:
        raise CheckpointError(
            f"{checkpoint.where(_MARKER)} is damaged ({e!r}); remove the checkpoint and start with a new one"
        ) from e
    if root.number == 0:
        root = next_root(checkpoint, root, why)
    checkpoint.delete(_MARKER)
    return root


_STATE = "state"  # Spark's state stores, beside the index below a root
_ROOTS, _MOVED = "tagstream/roots", "retired"  # the second: where an earlier program version moved a retired query


def prune_retired(checkpoint: Storage, root: Root) -> list[str]:
    """Delete the indexes of all retired queries but the last one; returns the folders of the queries, oldest first.

    Nothing is deleted before the query of ``root`` has committed a batch.
    """
    if root.number == 0 or not any(name.isdigit() for name in root.files.names("commits")):
        return []
    moved = sorted(int(name) for name in checkpoint.names(_MOVED) if name.isdigit())
    numbers = sorted(int(name) for name in checkpoint.names(_ROOTS) if name.isdigit())
    retired = [f"{_MOVED}/{n}" for n in moved] + ["", *(f"{_ROOTS}/{n}" for n in numbers if n < root.number)]
    pruned = []
    for folder in retired[:-1]:
        large = [f"{folder}/{name}".removeprefix("/") for name in (INDEX, _STATE)]
        there = [name for name in large if checkpoint.exists(name)]
        for name in there:
            checkpoint.delete_tree(name)
        if there:
            pruned.append(folder)
    return pruned


LOG = logging.getLogger("tagstream")
_RESUME = "tagstream/resume.json"
_FIXED_PLACE = "sources/0/0"  # Spark's own
_VERSION = 2
_RESUME_VERSION = 1
_BEGINS_VERSION = 1


@dataclass(frozen=True)
class Takeover:
    """What the generation covers is in its own mark (``state.index_loads.GenerationMarker.covered``)."""

    generation: int


def read_takeover(root: Storage) -> Takeover | None:
    """What the query works on; None when its index began empty."""
    numbers = [int(name.removesuffix(".json")) for name in root.names(TAKEOVER) if name.removesuffix(".json").isdigit()]
    name = f"{TAKEOVER}/{max(numbers)}.json" if numbers else f"{TAKEOVER}.json"
    return read_kept(root, name, _VERSION, lambda doc: Takeover(**doc))


def write_takeover(root: Storage, takeover: Takeover) -> None:
    """Make it durable."""
    create(root, f"{TAKEOVER}/{takeover.generation}.json", to_keep(_VERSION, **asdict(takeover)))


def write_resume(checkpoint: Storage, start_offsets: Any) -> None:
    """Keep where the next query must begin to read: our rows from there on were taken away by another writer."""
    checkpoint.replace(_RESUME, to_keep(_RESUME_VERSION, start_offsets=start_offsets))


def forget_resume(checkpoint: Storage) -> None:
    """The query that began there has planned its first batch."""
    checkpoint.delete(_RESUME)


def read_resume(checkpoint: Storage) -> Any:
    """Offsets that the next query must begin at; None where nothing says so."""
    # A new checkpoint would begin behind the rows that were taken away.
    return read_kept(checkpoint, _RESUME, _RESUME_VERSION, lambda doc: doc["start_offsets"], cure="restore it")


def write_begins(root: Storage, instant: str | None) -> None:
    """Keep the commit at whose end a new query begins to read; None where no commit gave the place.

    Spark fixes the place at the query's first trigger, and nothing changes from then on. When the commit is undone, its
    records lie before the place, so that query cannot be continued.
    """
    if root.exists(_FIXED_PLACE):
        return
    if instant is None:
        root.delete(BEGINS)
    else:
        root.replace(BEGINS, to_keep(_BEGINS_VERSION, after=instant))


def read_begins(root: Storage) -> str | None:
    """The commit at whose end the query began to read; None where no commit gave the place."""
    return read_kept(root, BEGINS, _BEGINS_VERSION, lambda doc: str(doc["after"]))


def starting_offsets(job: JobContext, spark: SparkSession, timeline: Timeline) -> tuple[str | None, str | None]:
    """The newest commit of this stream (ours or HoodieStreamer's), and where it ended, as Spark's JSON; None for files.

    None, too, where no commit tells, with a warning. No commit where rows are read again that another writer took away.
    Spark wants every partition of the topic named: those that the commit does not know are read from their beginning.
    SourceError when the topic does not go as far as it was read.
    """
    if job.options.source_class == "frame":
        LOG.warning(
            "checkpoint %s is new, and table %s has commits: the stream begins where the readers of its DataFrame say; what "
            "the table has already is late or the same",
            job.env.checkpoint.root,
            job.table.base_path,
        )
        return None, None
    if job.options.source_class != "kafka" or job.options.bootstrap_only:
        return None, None
    topic = job.options.kafka_topic
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
            LOG.warning("%s. The new one is read from its beginning", why)
            return None, "earliest"
        there = topic_offsets(spark, topic, job.options.kafka_options)
        return instant, json.dumps({topic: {str(p): at for p, at in _resumed(job, topic, read, there).items()}})
    LOG.warning(
        "no commit of table %s tells how far stream %s was read: reading from %s",
        job.table.base_path,
        job.env.meta.stream_id,
        job.options.starting_offsets,
    )
    return None, None


def _read_up_to(job: JobContext, timeline: Timeline, topic: str) -> tuple[str, dict[int, int], str | None] | None:
    """The newest commit of the stream, the next offset of every partition after it, and the topic's id then (None: not
    known). None where no commit tells."""
    for time, extra in all_extra_metadata(job.table, timeline):
        record = parse(extra)
        if record is not None and record.stream_id == job.env.meta.stream_id:
            if topic not in record.end_offsets:
                raise SourceError(
                    f"stream {record.stream_id} of table {job.table.base_path} has read topic "
                    f"{', '.join(record.end_offsets)}, the job reads {topic}: correct hoodie.streamer.source.kafka.topic, "
                    "or give the new stream a name of its own (hoodie.datasource.write.streaming.checkpoint.identifier)"
                )
            return time, _offsets_of(record.end_offsets, topic), record.topic_id
        name, *parts = extra.get(STREAMER_KEY, "").split(",")
        if record is None and parts and name == topic:
            return time, {int(p): int(offset) for p, _, offset in (part.partition(":") for part in parts)}, None
    return None


def _offsets_of(offsets: Any, topic: str) -> dict[int, int]:
    return {int(p): int(offset) for p, offset in offsets[topic].items()}


def _resumed(job: JobContext, topic: str, read: Mapping[int, int], there: Mapping[int, Ends]) -> dict[int, int]:
    """Where each partition of the topic is read on: what was not read before, and what was lost, from its beginning."""
    lost = dict.fromkeys(sorted(read.keys() - there.keys()), "is there no more")
    for p in sorted(read.keys() & there.keys()):
        if read[p] > there[p].latest:
            lost[p] = f"ends at {there[p].latest}, and was read up to {read[p]}"
        elif read[p] < there[p].earliest:
            lost[p] = f"begins at {there[p].earliest}, and was read up to {read[p]}"
    if lost:
        what = (
            f"table {job.table.base_path} has read topic {topic} further than it goes now: "
            f"{'; '.join(f'partition {p} {why}' for p, why in lost.items())}. It was made anew, or its records have expired"
        )
        if job.options.fail_on_data_loss:
            raise SourceError(
                f"{what}. Put the records back, or accept that what was not read is lost with "
                "hoodie.streamer.source.kafka.enable.failOnDataLoss=false: the partitions are then read from their beginning"
            )
        LOG.warning("%s. They are read from their beginning", what)
    new = sorted(there.keys() - read.keys())
    if new:
        LOG.info("topic %s has new partitions (%s): read from their beginning", topic, ", ".join(map(str, new)))
    return {p: EARLIEST if p in lost or p not in read else read[p] for p in sorted(there)}
