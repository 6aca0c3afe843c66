"""The arguments of ``tagstream.upsert``, checked before anything is made: a session, a trigger, and entries of options."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tagstream.streaming.options.keys.registry import REGISTRY
from tagstream.table.config import FROM_CONF, FROM_FLAG, Entry
from tagstream.table.errors import ConfigError

Columns = str | Sequence[str]
Trigger = str | Mapping[str, Any]

_COLUMNS = {
    "key": "hoodie.datasource.write.recordkey.field",
    "partition_by": "hoodie.datasource.write.partitionpath.field",
    "order_by": "hoodie.table.ordering.fields",
}
_PLACES = {"hoodie.base.path": "path", "--checkpoint-dir": "checkpoint"}
_SET_BY_ARGUMENT = {**_PLACES, "--continuous": "trigger", "--min-sync-interval-seconds": "trigger"}
_FLAGS = {flag: key.name for key in REGISTRY.keys for flag in key.flags}
# What people call the columns, and the argument that takes them.
_MEANT = {
    **dict.fromkeys(("key", "keys", "recordkey", "record-key"), "key"),
    **dict.fromkeys(("partition", "partitionby", "partition-by"), "partition_by"),
    **dict.fromkeys(("precombine", "order", "order-by", "ordering"), "order_by"),
}
_AVAILABLE_NOW = "availableNow"
_PROCESSING_TIME = "processingTime"
_AS_FAST = {_PROCESSING_TIME: "0 seconds"}


def classic_session(df: object) -> SparkSession:
    """The DataFrame's session; ConfigError for what is not a streaming DataFrame of a session in this process."""
    module = type(df).__module__
    if module.startswith("pyspark.sql.connect"):
        raise ConfigError(
            "the DataFrame is one of Spark Connect: the batches are committed by this process, beside Spark's driver, which "
            "a client of Spark Connect does not reach. Make it with a session of this process (SparkSession.builder with "
            "master, or spark-submit)"
        )
    if not isinstance(df, DataFrame):
        kind = f"{module.partition('.')[0]}.{type(df).__name__}" if "." in module else type(df).__name__
        hint = "; spark.createDataFrame makes one of rows, which is not a stream: write them to files first, and read these"
        raise ConfigError(
            f"df is a {kind}; give a streaming DataFrame of PySpark (spark.readStream)"
            f"{hint if module.startswith(('pandas', 'polars', 'pyarrow')) else ''}"
        )
    if not df.isStreaming:
        raise ConfigError(
            "the DataFrame is not a streaming one, and this program writes streams: read its source with spark.readStream, "
            'and give trigger="availableNow" to take what there is and end. A function for foreachBatch gets such a '
            "DataFrame: give the stream itself to upsert, which does what writeStream.foreachBatch(...).start() did"
        )
    return df.sparkSession


def trigger_of(given: Trigger | None) -> dict[str, Any]:
    """Spark's arguments for ``DataStreamWriter.trigger``; ConfigError for a trigger that runs no micro-batches."""
    if given is None:
        return dict(_AS_FAST)
    told = {given: True} if given == _AVAILABLE_NOW else {_PROCESSING_TIME: given} if isinstance(given, str) else given
    if not isinstance(told, Mapping) or len(told) != 1 or next(iter(told)) not in (_PROCESSING_TIME, _AVAILABLE_NOW):
        raise ConfigError(
            f'trigger {given!r}: give "10 seconds" or "{_AVAILABLE_NOW}", or as Spark\'s arguments '
            f'{{"{_PROCESSING_TIME}": "10 seconds"}} or {{"{_AVAILABLE_NOW}": True}}; the others run no batches that can be '
            "committed"
        )
    ((name, value),) = told.items()
    if name == _AVAILABLE_NOW and value is not True:
        raise ConfigError(f"trigger {given!r}: {_AVAILABLE_NOW} is True or left out")
    if name == _PROCESSING_TIME and not _is_interval(value):
        raise ConfigError(f'trigger {given!r}: {value!r} is not an interval of Spark; give for example "10 seconds"')
    return {name: value}


def entries_of(
    path: str | os.PathLike[str],
    checkpoint: str | os.PathLike[str],
    columns: Mapping[str, Columns | None],
    options: Mapping[str, Any] | None,
) -> list[Entry]:
    """The options as the job takes them. ``columns``: what ``key``, ``partition_by`` and ``order_by`` say, or None."""
    if options is not None and not isinstance(options, Mapping):
        raise ConfigError(
            f"options is a {type(options).__name__}; give a dict of keys and values (docs/configuration.md)"
        )
    entries = [_entry(name, value) for name, value in (options or {}).items()]
    for argument, names in columns.items():
        if names is not None:
            twice = next((entry for entry in entries if _known(entry.key) == _COLUMNS[argument]), None)
            if twice is not None:
                raise ConfigError(
                    f"the columns {argument} are given twice, as the argument and in options ({twice.key}); remove one"
                )
            entries.append(Entry(_COLUMNS[argument], _names(argument, names), f"argument {argument}", FROM_FLAG))
    for (key, argument), place in zip(_PLACES.items(), (path, checkpoint), strict=True):
        if not isinstance(place, str | os.PathLike) or not os.fspath(place):
            raise ConfigError(f"{argument} is {place!r}; give a folder as text or a Path")
        # A key that is a flag alone must say that it comes from one.
        origin = key if key.startswith("--") else f"argument {argument}"
        entries.append(Entry(key, os.fspath(place), origin, FROM_FLAG))
    return entries


def default_name(path: str | os.PathLike[str]) -> str:
    """The name of a new table where none is given: that of its folder."""
    return os.fspath(path).rstrip("/").rpartition("/")[2]


def _entry(name: object, value: object) -> Entry:
    """One option; a flag of the command line is the key that it stands for."""
    if not isinstance(name, str):
        raise ConfigError(f"options: {name!r} is a {type(name).__name__}; keys are text")
    if name in _SET_BY_ARGUMENT:
        raise ConfigError(f"options: {name} is the argument {_SET_BY_ARGUMENT[name]} of upsert; give it there")
    if value is None:
        raise ConfigError(f"options: {name} is None; leave the key out, or give it a value")
    if isinstance(value, list | tuple):
        text = ",".join(map(str, value))
    else:
        text = str(value).lower() if isinstance(value, bool) else str(value)
    if name.startswith("--"):
        return Entry(_FLAGS.get(name, name), text, name, FROM_FLAG)
    if "." not in name:  # a key of Hudi or Spark has one: this is a flag or an argument, or nothing
        raise ConfigError(f"options: {name} is not a key{_hint(name)}")
    return Entry(name, text, "options", FROM_CONF)


def _hint(name: str) -> str:
    plain = name.replace("_", "-").lower()
    if f"--{plain}" in _FLAGS:
        return f"; did you mean --{plain} ({_FLAGS[f'--{plain}']})?"
    if plain in _MEANT:
        return f"; did you mean the argument {_MEANT[plain]} of upsert?"
    near = difflib.get_close_matches(f"--{plain}", sorted(_FLAGS), n=1, cutoff=0.7)
    return f"; did you mean {near[0]} ({_FLAGS[near[0]]})?" if near else "; docs/configuration.md lists them"


def _known(name: str) -> str:
    key = REGISTRY.find(name)
    return key.name if key is not None else name


def _names(argument: str, given: object) -> str:
    """Column names as the key takes them: joined by commas."""
    names = [given] if isinstance(given, str) else given
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise ConfigError(
            f'{argument} is {given!r}; give a column\'s name as text, or a list of names: {argument}=["a", "b"]'
        )
    if argument == "key" and not any(name.strip() for name in names):
        raise ConfigError("key is empty; name the columns that tell one row from another")
    return ",".join(names)


def _is_interval(value: object) -> bool:
    """Whether this is a number and a unit, as Spark takes an interval for a trigger."""
    words = value.split() if isinstance(value, str) else []
    units = ("millisecond", "second", "minute", "hour", "day", "week", "microsecond")
    pairs = list(zip(words[::2], words[1::2], strict=False))
    return (
        bool(words)
        and len(words) % 2 == 0
        and all(_is_number(n) and unit.lower().removesuffix("s") in units for n, unit in pairs)
    )


def _is_number(text: str) -> bool:
    try:
        return float(text) >= 0
    except ValueError:
        return False
