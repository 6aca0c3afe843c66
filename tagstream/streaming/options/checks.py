"""What the options must be to each other. What is wrong is noted in the result, so that one message tells all of it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from itertools import combinations
from pathlib import PurePosixPath

from tagstream.streaming.options.resolve import Problem, Resolved, shown
from tagstream.table.errors import ConfigError
from tagstream.table.keys.time_partition import NAMES, PREFIX, TimePartition
from tagstream.table.meta_client.table_config import split_kinds
from tagstream.table.storage.opening import canonical, is_ours

_TYPE = "hoodie.datasource.write.keygenerator.type"
_CLASS = "hoodie.datasource.write.keygenerator.class"
_KEYS, _PARTITIONS = "hoodie.datasource.write.recordkey.field", "hoodie.datasource.write.partitionpath.field"
_ORDERING, _MODE = "hoodie.table.ordering.fields", "hoodie.write.record.merge.mode"
_TOPIC = "hoodie.streamer.source.kafka.topic"
_ROOT = "hoodie.streamer.source.dfs.root"
_CLEAN, _ARCHIVE = "tagstream.source.dfs.clean", "tagstream.source.dfs.archive.dir"
_TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")  # Kafka's own rule
_TABLE_NAME = "hoodie.table.name"
_OF_RECORDS = ("Source", "Formats", "Records", "Transformations")  # sections of the key table


def required(r: Resolved, name: str) -> str:
    """The text of a key; it is a problem where there is none."""
    value = r.opt_text(name)
    if value is None and name not in r.wrong:
        r.problems.append(Problem(f"{r.call(name)} is missing; give it"))
    return value or ""


def folder(place: str | None) -> str | None:
    """A folder as it is known from then on: its absolute path or its URL, however it was spelled."""
    return None if place is None else canonical(place)


def source_archive(r: Resolved, source: str | None) -> str | None:
    """The folder that files of the source are moved to; None where they are not."""
    archive, clean = folder(r.opt_text(_ARCHIVE)), r.text(_CLEAN)
    if clean != "off" and source is not None and not is_ours(source):
        text = f"{r.said(_CLEAN)}: Spark lists and reads {_ROOT} {source} itself, and nothing is taken away there; remove it"
        r.problems.append(Problem(text, r.entries.get(_CLEAN)))
    if clean == "archive" and archive is None and _ARCHIVE not in r.wrong:
        r.problems.append(Problem(f"{r.said(_CLEAN)} moves files, and {_ARCHIVE} does not say where to; give it"))
    if clean != "archive" and archive is not None:
        text = f"{r.said(_ARCHIVE)}: files are moved there with {_CLEAN}=archive only; set it, or remove this"
        r.problems.append(Problem(text, r.entries.get(_ARCHIVE)))
    if clean == "archive" and archive is not None and not is_ours(archive):
        text = f"{r.said(_ARCHIVE)}: it is not a place that this program writes to itself; name another one"
        r.problems.append(Problem(text, r.entries.get(_ARCHIVE)))
    return archive if clean == "archive" else None


def check_apart(r: Resolved, base_path: str, checkpoint: str, source: str | None, archive: str | None = None) -> None:
    """None of table, checkpoint, source and the archive of its files may lie in another, by links neither."""
    named = [
        ("--target-base-path", base_path, "a table's folder must hold nothing but the table"),
        ("--checkpoint-dir", checkpoint, "a checkpoint inside a table looks like data to other readers"),
        (_ROOT, source, "the job would read its own files as records"),
        (_ARCHIVE, archive, "files of the source that are moved there would be read again, or be taken for others"),
    ]
    places = [(name, given, why) for name, given, why in named if given]
    for (one, given, _), (other, as_given, why) in combinations(places, 2):
        if are_nested(given, as_given):
            text = f"{other} {as_given} and {one} {given} lie in one another; {why}: give them folders of their own"
            r.problems.append(Problem(text))


def are_nested(one: str, other: str) -> bool:
    """Whether two folders are the same, or one lies in the other, by links, too."""
    first, second = _real(one), _real(other)
    return first == second or first in second.parents or second in first.parents


def _real(place: str) -> PurePosixPath:
    path = canonical(place)
    return PurePosixPath(path if "://" in path else os.path.realpath(path))


def check_table_name(r: Resolved) -> None:
    """A table's name becomes part of names in its schema and of its description: neither a slash nor what can't be seen."""
    name = r.opt_text(_TABLE_NAME)
    if name is not None and ("/" in name or not name.isprintable()):
        text = f"{r.call(_TABLE_NAME)} {name!r}: a table's name has no slash and no control character; give another one"
        r.problems.append(Problem(text, r.entries[_TABLE_NAME]))


def key_generator(r: Resolved, keys: tuple[str, ...], partitions: tuple[str, ...]) -> str:
    """The key generator that is asked for, or that follows from the fields."""
    if not partitions:
        derived = "NON_PARTITION"
    else:
        derived = "SIMPLE" if len(keys) == 1 and len(partitions) == 1 else "COMPLEX"
    return r.attempt(lambda: _chosen(r, keys, partitions, derived), derived, _TYPE, _CLASS, _KEYS, _PARTITIONS)


def _chosen(r: Resolved, keys: tuple[str, ...], partitions: tuple[str, ...], derived: str) -> str:
    by_type, by_class = r.opt_text(_TYPE), r.opt_text(_CLASS)
    if by_type and by_class and by_type != by_class:
        raise ConfigError(f"{r.said(_TYPE)} contradicts {r.said(_CLASS)}; remove one")
    chosen = by_class or by_type or derived
    name = _CLASS if by_class else _TYPE
    if keys and chosen in ("SIMPLE", "TIMESTAMP") and (len(keys) != 1 or len(partitions) != 1):
        counts = f"it takes one key and one partition field, but there are {len(keys)} and {len(partitions)}"
        if chosen == "TIMESTAMP" and partitions:  # others take a time for what it is: a partition for each millisecond
            kinds = ",".join(f"{field}:TIMESTAMP" for field in partitions)
            raise ConfigError(
                f"{r.said(name)}: {counts}; give CUSTOM, and {_PARTITIONS} with a kind behind each field ({kinds}, or "
                "SIMPLE for one that is not a time)"
            )
        raise ConfigError(f"{r.said(name)}: {counts}; remove the key so that {derived} is used")
    if keys and chosen == "NON_PARTITION" and partitions:
        raise ConfigError(f"{r.said(name)}: it makes no partitions, but {r.said(_PARTITIONS)}; remove one of the two")
    return chosen


def given_times(r: Resolved) -> dict[str, str]:
    """The keys ``hoodie.keygen.timebased.*`` that the job is given, by their last part."""
    return {name: r.entries[PREFIX + name].value for name in NAMES if PREFIX + name in r.entries}


def partition_times(
    r: Resolved, generator: str, fields: tuple[str, ...], told: Mapping[str, str]
) -> tuple[tuple[str, ...], TimePartition | None]:
    """(partition fields whose paths are made of times, how): of the TIMESTAMP generator all, of the CUSTOM one those of that
    kind; a problem for kinds that are missing or of no use, and for rules that cannot be. What the job leaves out, an
    existing table may have."""
    r.attempt(lambda: _check_kinds(r, generator, fields), None, _PARTITIONS, _TYPE, _CLASS)
    names, timed = split_kinds(fields)
    timed = names if generator == "TIMESTAMP" else timed if generator == "CUSTOM" else ()
    timed_kind = generator in ("TIMESTAMP", "CUSTOM")
    if told and not timed_kind:
        chosen = any(key in r.entries for key in (_TYPE, _CLASS))
        this = generator if chosen else f"{generator}, where the table has no other one"
        r.warnings += [
            f"{r.said(PREFIX + name)}: read by the key generators TIMESTAMP and CUSTOM only, and this one is {this}"
            for name in told
        ]
    if not timed_kind or not {"timestamp.type", "output.dateformat"} <= told.keys():
        return timed, None  # an existing table may say how
    return timed, r.attempt(
        lambda: TimePartition.from_properties({PREFIX + name: value for name, value in told.items()}),
        None,
        *(PREFIX + name for name in NAMES),
    )


def _check_kinds(r: Resolved, generator: str, fields: tuple[str, ...]) -> None:
    kinds = [field.partition(":")[2].strip().upper() for field in fields]
    if generator != "CUSTOM":
        if any(kinds):
            raise ConfigError(
                f"{r.said(_PARTITIONS)}: only the CUSTOM key generator takes kinds of fields; remove them"
            )
        return
    wrong = next(
        (field for field, kind in zip(fields, kinds, strict=True) if kind not in ("SIMPLE", "TIMESTAMP")), None
    )
    if wrong is not None:
        raise ConfigError(
            f"{r.said(_PARTITIONS)}: the CUSTOM key generator needs a kind behind each field, {wrong}:SIMPLE or "
            f"{wrong.partition(':')[0]}:TIMESTAMP"
        )


def merge_mode(r: Resolved, ordering: tuple[str, ...]) -> str:
    """By event time with an ordering field, else by commit time."""
    derived = "EVENT_TIME_ORDERING" if ordering else "COMMIT_TIME_ORDERING"
    r.attempt(lambda: _check_mode(r, ordering), None, _MODE, _ORDERING)
    return derived


def _check_mode(r: Resolved, ordering: tuple[str, ...]) -> None:
    asked = r.opt_text(_MODE)
    if asked == "COMMIT_TIME_ORDERING" and ordering:
        raise ConfigError(
            f"{r.said(_MODE)} contradicts the ordering field {','.join(ordering)}: with one the newer event wins; remove "
            "the merge mode, or the ordering field"
        )
    if asked == "EVENT_TIME_ORDERING" and not ordering:
        raise ConfigError(f"{r.said(_MODE)} needs an ordering field; give {_ORDERING}")


def check_source(r: Resolved, source_class: str) -> None:
    """The source has what it needs."""
    if "--source-class" in r.wrong:
        return
    for name in (_TOPIC, "bootstrap.servers") if source_class == "kafka" else (_ROOT,):
        if r.opt_text(name) is None and name not in r.wrong:
            text = f"{name} is missing; --source-class {r.text('--source-class')} needs it"
            r.problems.append(Problem(text))
    topic = r.opt_text(_TOPIC)
    if source_class == "kafka" and topic is not None and "," in topic:
        r.problems.append(Problem(f"{r.said(_TOPIC)}: one topic is read by one job", r.entries[_TOPIC]))
    elif source_class == "kafka" and topic is not None and not _TOPIC_NAME.fullmatch(topic):
        text = f"{r.said(_TOPIC)}: not the name of a topic (letters, digits, `.`, `_`, `-`), and patterns are not read"
        r.problems.append(
            Problem(
                f"{text}; give one topic, or a job for several tables (docs/guide/dataframes.md#several-tables)",
                r.entries[_TOPIC],
            )
        )


def check_frame(r: Resolved) -> None:
    """A DataFrame is the source: no key may name another one, or say how text is read."""
    for name in (*r.entries, *r.kafka):
        key = r.registry.find(name)
        if name in r.kafka or (key is not None and key.section in _OF_RECORDS and name != "tagstream.delete.field"):
            entry = r.kafka.get(name) or r.entries[name]
            r.problems.append(
                Problem(f"{shown(entry)}: the source is a DataFrame, whose rows are read by Spark; remove it", entry)
            )
    for name in ("--bootstrap-only", "--dry-run"):
        if r.flag(name):
            r.problems.append(Problem(f"{r.said(name)}: a flag of the command line; it has no meaning for a DataFrame"))


def check_bootstrap_only(r: Resolved) -> None:
    """Loading an index is no stream."""
    for name, value in (("--continuous", True), ("index.bootstrap.enabled", False)):
        if name not in r.wrong and r.flag(name) is value:
            r.problems.append(Problem(f"--bootstrap-only contradicts {r.said(name)}; remove one of the two"))
