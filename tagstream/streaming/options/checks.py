"""Checks of options against each other. Errors are collected in the result, so that one message has all of them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from itertools import combinations
from pathlib import PurePosixPath

from tagstream.streaming.options.resolve import Problem, Resolved, shown
from tagstream.table.errors import ConfigError
from tagstream.table.keys.generators import GENERATORS, KeyKind, Times, default_generator
from tagstream.table.keys.time_partition import NAMES, PREFIX, TimePartition
from tagstream.table.meta_client.table_config import split_kinds
from tagstream.table.storage.opening import canonical, is_supported

_TYPE = "hoodie.datasource.write.keygenerator.type"
_CLASS = "hoodie.datasource.write.keygenerator.class"
_KEYS, _PARTITIONS = "hoodie.datasource.write.recordkey.field", "hoodie.datasource.write.partitionpath.field"
_ORDERING, _MODE = "hoodie.table.ordering.fields", "hoodie.write.record.merge.mode"
_TOPIC = "hoodie.streamer.source.kafka.topic"
_ROOT, _SOURCE_TABLE = "hoodie.streamer.source.dfs.root", "hoodie.streamer.source.hoodieincr.path"
_CLEAN, _ARCHIVE = "tagstream.source.dfs.clean", "tagstream.source.dfs.archive.dir"
_TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")  # Kafka's own rule
_TABLE_NAME = "hoodie.table.name"
_OF_RECORDS = ("Source", "Formats", "Records", "Transformations")  # sections of the key table


def required(r: Resolved, name: str) -> str:
    """The text of a key; a problem if it is missing."""
    value = r.opt_text(name)
    if value is None and name not in r.wrong:
        r.problems.append(Problem(f"{r.call(name)} is missing; set it"))
    return value or ""


def folder(place: str | None) -> str | None:
    """A folder's absolute path or URL, whatever its spelling was."""
    return None if place is None else canonical(place)


def source_archive(r: Resolved, source: str | None) -> str | None:
    """The folder to which files of the source are moved; None if they are not moved."""
    archive, clean = folder(r.opt_text(_ARCHIVE)), r.text(_CLEAN)
    if clean != "off" and source is not None and not is_supported(source):
        text = (
            f"{r.said(_CLEAN)}: Spark lists and reads {_ROOT} {source} itself, and its files are not removed; remove this "
            f"key"
        )
        r.problems.append(Problem(text, r.entries.get(_CLEAN)))
    if clean == "archive" and archive is None and _ARCHIVE not in r.wrong:
        r.problems.append(Problem(f"{r.said(_CLEAN)} moves files, but {_ARCHIVE} is missing; set it"))
    if clean != "archive" and archive is not None:
        text = f"{r.said(_ARCHIVE)}: files are moved there only with {_CLEAN}=archive; set that, or remove this key"
        r.problems.append(Problem(text, r.entries.get(_ARCHIVE)))
    if clean == "archive" and archive is not None and not is_supported(archive):
        text = f"{r.said(_ARCHIVE)}: this program does not write to this storage itself; name another folder"
        r.problems.append(Problem(text, r.entries.get(_ARCHIVE)))
    return archive if clean == "archive" else None


def check_apart(
    r: Resolved,
    base_path: str,
    checkpoint: str,
    source: str | None,
    archive: str | None = None,
    source_table: str | None = None,
) -> None:
    """Table, checkpoint, source and the archive of its files must not contain one another, also not through links."""
    named = [
        ("--target-base-path", base_path, "a table's folder must contain only the table"),
        ("--checkpoint-dir", checkpoint, "other readers take a checkpoint inside a table for data"),
        (_ROOT, source, "the job would read its own files as records"),
        (_SOURCE_TABLE, source_table, "a table cannot be its own source, and its folder must contain only the table"),
        (_ARCHIVE, archive, "moved files of the source would be read again, or be taken for other files"),
    ]
    places = [(name, given, why) for name, given, why in named if given]
    for (one, given, _), (other, as_given, why) in combinations(places, 2):
        if are_nested(given, as_given):
            text = f"{other} {as_given} and {one} {given} contain one another; {why}: use separate folders"
            r.problems.append(Problem(text))


def are_nested(one: str, other: str) -> bool:
    """Whether two folders are the same, or one contains the other, also through links."""
    first, second = _real(one), _real(other)
    return first == second or first in second.parents or second in first.parents


def _real(place: str) -> PurePosixPath:
    path = canonical(place)
    return PurePosixPath(path if "://" in path else os.path.realpath(path))


def check_table_name(r: Resolved) -> None:
    """A table's name is part of names in its schema and of its description: it has no slash and no control character."""
    name = r.opt_text(_TABLE_NAME)
    if name is not None and ("/" in name or not name.isprintable()):
        text = f"{r.call(_TABLE_NAME)} {name!r}: a table's name has no slash and no control character; use another name"
        r.problems.append(Problem(text, r.entries[_TABLE_NAME]))


def key_generator(r: Resolved, keys: tuple[str, ...], partitions: tuple[str, ...]) -> KeyKind:
    """The given key generator, or the one for these fields."""
    derived = default_generator(keys, partitions).kind
    return r.attempt(lambda: _chosen(r, keys, partitions, derived), derived, _TYPE, _CLASS, _KEYS, _PARTITIONS)


def _chosen(r: Resolved, keys: tuple[str, ...], partitions: tuple[str, ...], derived: KeyKind) -> KeyKind:
    by_type, by_class = r.opt_text(_TYPE), r.opt_text(_CLASS)
    if by_type and by_class and by_type != by_class:
        raise ConfigError(f"{r.said(_TYPE)} contradicts {r.said(_CLASS)}; remove one")
    chosen = KeyKind(by_class or by_type or derived)
    facts = GENERATORS[chosen]
    name = _CLASS if by_class else _TYPE
    if keys and facts.one_field and (len(keys) != 1 or len(partitions) != 1):
        counts = f"it needs one key and one partition field, but there are {len(keys)} and {len(partitions)}"
        # Other generators use a time's number: a partition for each millisecond.
        if facts.times is Times.ALL and partitions:
            kinds = ",".join(f"{field}:TIMESTAMP" for field in partitions)
            raise ConfigError(
                f"{r.said(name)}: {counts}; use CUSTOM, and {_PARTITIONS} with a kind after each field ({kinds}, or "
                "SIMPLE for one that is not a time)"
            )
        raise ConfigError(f"{r.said(name)}: {counts}; remove the key so that {derived} is used")
    if keys and facts.partitions is False and partitions:
        raise ConfigError(
            f"{r.said(name)}: its tables have no partitions, but {r.said(_PARTITIONS)}; remove one of the two"
        )
    return chosen


def given_times(r: Resolved) -> dict[str, str]:
    """The given keys ``hoodie.keygen.timebased.*``, by their last part."""
    return {name: r.entries[PREFIX + name].value for name in NAMES if PREFIX + name in r.entries}


def partition_times(
    r: Resolved, generator: KeyKind, fields: tuple[str, ...], time_properties: Mapping[str, str]
) -> tuple[tuple[str, ...], TimePartition | None]:
    """(partition fields with times in their paths, the rules): all fields of the TIMESTAMP generator, those of this kind of
    the CUSTOM one. A problem for kinds that are missing or without effect, and for invalid rules. An existing table may
    have rules that the job does not give."""
    r.attempt(lambda: _check_kinds(r, generator, fields), None, _PARTITIONS, _TYPE, _CLASS)
    names, timed = split_kinds(fields)
    times = GENERATORS[generator].times
    timed = {Times.NONE: (), Times.ALL: names, Times.BY_KIND: timed}[times]
    timed_kind = times is not Times.NONE
    if time_properties and not timed_kind:
        chosen = any(key in r.entries for key in (_TYPE, _CLASS))
        this = generator if chosen else f"{generator}, if the table has no other one"
        r.warnings += [
            f"{r.said(PREFIX + name)}: only the key generators TIMESTAMP and CUSTOM read this key, but this one is {this}"
            for name in time_properties
        ]
    if not timed_kind or not {"timestamp.type", "output.dateformat"} <= time_properties.keys():
        return timed, None  # an existing table may have the rules
    return timed, r.attempt(
        lambda: TimePartition.from_properties({PREFIX + name: value for name, value in time_properties.items()}),
        None,
        *(PREFIX + name for name in NAMES),
    )


def _check_kinds(r: Resolved, generator: KeyKind, fields: tuple[str, ...]) -> None:
    kinds = [field.partition(":")[2].strip().upper() for field in fields]
    if GENERATORS[generator].times is not Times.BY_KIND:
        if any(kinds):
            raise ConfigError(f"{r.said(_PARTITIONS)}: only the CUSTOM key generator has kinds of fields; remove them")
        return
    wrong = next(
        (field for field, kind in zip(fields, kinds, strict=True) if kind not in ("SIMPLE", "TIMESTAMP")), None
    )
    if wrong is not None:
        raise ConfigError(
            f"{r.said(_PARTITIONS)}: the CUSTOM key generator needs a kind after each field, {wrong}:SIMPLE or "
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
        raise ConfigError(f"{r.said(_MODE)} needs an ordering field; set {_ORDERING}")


def check_source(r: Resolved, source_class: str) -> None:
    """Check that the source's options are complete."""
    if "--source-class" in r.wrong:
        return
    needed = {"kafka": (_TOPIC, "bootstrap.servers"), "hudi": (_SOURCE_TABLE,)}.get(source_class, (_ROOT,))
    for name in needed:
        if r.opt_text(name) is None and name not in r.wrong:
            text = f"{name} is missing; --source-class {r.text('--source-class')} needs it"
            r.problems.append(Problem(text))
    topic = r.opt_text(_TOPIC)
    if source_class == "kafka" and topic is not None and "," in topic:
        r.problems.append(Problem(f"{r.said(_TOPIC)}: a job reads one topic", r.entries[_TOPIC]))
    elif source_class == "kafka" and topic is not None and not _TOPIC_NAME.fullmatch(topic):
        text = f"{r.said(_TOPIC)}: not the name of a topic (letters, digits, `.`, `_`, `-`), and patterns are not read"
        r.problems.append(
            Problem(
                f"{text}; set one topic, or use a job for several tables (docs/guide/dataframes.md#several-tables)",
                r.entries[_TOPIC],
            )
        )


def check_file_form(r: Resolved, source_class: str, root: str | None) -> None:
    """Check that this program reads the storage of files that Spark cannot read for it."""
    if source_class in ("ParquetDFSSource", "AvroDFSSource", "CsvDFSSource") and root and not is_supported(root):
        text = (
            f"{r.said(_ROOT)}: Spark reads this storage, and only lines of JSON from it; copy the files to another storage, "
            f"or use JsonDFSSource"
        )
        r.problems.append(Problem(text, r.entries.get(_ROOT)))


def check_frame(r: Resolved) -> None:
    """Check that no key names another source than the DataFrame, or how text is read."""
    for name in (*r.entries, *r.kafka):
        key = r.registry.find(name)
        if name in r.kafka or (key is not None and key.section in _OF_RECORDS and name != "tagstream.delete.field"):
            entry = r.kafka.get(name) or r.entries[name]
            r.problems.append(
                Problem(f"{shown(entry)}: the source is a DataFrame, and Spark reads its rows; remove this key", entry)
            )
    for name in ("--bootstrap-only", "--dry-run"):
        if r.flag(name):
            r.problems.append(Problem(f"{r.said(name)}: a flag of the command line; it has no meaning for a DataFrame"))


def check_bootstrap_only(r: Resolved) -> None:
    """Check that no option of a stream is given when only the index is loaded."""
    for name, value in (("--continuous", True), ("index.bootstrap.enabled", False)):
        if name not in r.wrong and r.flag(name) is value:
            r.problems.append(Problem(f"--bootstrap-only contradicts {r.said(name)}; remove one of the two"))
