"""The values of a partition's keys in a catalogue, taken from its path: Hudi's PartitionValueExtractor classes."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import unquote

from tagstream.table.errors import ConfigError, TableConfigMismatchError

EXTRACTOR_KEY = "hoodie.datasource.hive_sync.partition_extractor_class"
_PACKAGE = "org.apache.hudi.hive."
_DEFAULT_VALUE = "__HIVE_DEFAULT_PARTITION__"

Extractor = Callable[[str], tuple[str, ...]]


def _parts(path: str) -> list[str]:
    return path.split("/") if path else []


def _value(part: str) -> str:
    """The value of ``name=value``, or the whole part."""
    return part.split("=", 1)[1] if "=" in part else part


def _multi_part(path: str) -> tuple[str, ...]:
    return tuple(_value(part) for part in _parts(path))


def _single_part(path: str) -> tuple[str, ...]:
    return (path,)


def _none(_path: str) -> tuple[str, ...]:
    return ()


def _slashed(*names: str) -> Extractor:
    """Numbers between slashes, joined by ``-``, the year with four digits and the others with two."""

    def extract(path: str) -> tuple[str, ...]:
        parts = [_value(part) for part in _parts(path)]
        if len(parts) != len(names) or not all(part.isascii() and part.isdigit() for part in parts):
            raise ValueError(f"is not of the form {'/'.join(names)}")
        numbers = [int(part) for part in parts]
        widths = [4 if name == "yyyy" else 2 for name in names]
        return ("-".join(f"{number:0{width}}" for number, width in zip(numbers, widths, strict=True)),)

    return extract


EXTRACTORS: dict[str, Extractor] = {
    "MultiPartKeysValueExtractor": _multi_part,
    "HiveStylePartitionValueExtractor": _multi_part,
    "SinglePartPartitionValueExtractor": _single_part,
    "NonPartitionedExtractor": _none,
    "SlashEncodedDayPartitionValueExtractor": _slashed("yyyy", "mm", "dd"),
    "SlashEncodedHourPartitionValueExtractor": _slashed("yyyy", "mm", "dd", "HH"),
}


def extractor_name(given: str | None, fields: int) -> str:
    """The short class name of the extractor that is used.

    Args:
        given: the user's class, with or without package; None: Hudi's choice by the number of partition fields.
        fields: number of partition fields.

    Raises:
        ConfigError: a class that is not one of :data:`EXTRACTORS`.
    """
    if given is None:
        return "MultiPartKeysValueExtractor" if fields else "NonPartitionedExtractor"
    short = given.rpartition(".")[2]
    if short not in EXTRACTORS or given not in (short, _PACKAGE + short):
        known = ", ".join(_PACKAGE + name for name in EXTRACTORS)
        raise ConfigError(f"{EXTRACTOR_KEY} = {given} is not a class of this version: {known}")
    return short


def partition_values(path: str, fields: tuple[str, ...], extractor: str, *, decode: bool) -> tuple[str, ...]:
    """The values of the partition keys ``fields`` for a partition path.

    Args:
        path: relative to the base path, as in the table (encoded if the table encodes).
        fields: names of the partition keys.
        extractor: a name of :data:`EXTRACTORS`.
        decode: replace ``%xx`` by their characters.

    Raises:
        TableConfigMismatchError: the path has another form, or another number of values than there are keys.
    """
    try:
        values = EXTRACTORS[extractor](path)
        problem = "" if len(values) == len(fields) else f"has {len(values)} values for {len(fields)} partition fields"
    except ValueError as e:
        values, problem = (), str(e)
    if problem:
        raise TableConfigMismatchError(
            f"partition {path!r} {problem} ({', '.join(fields) or 'none'}), as {extractor} reads it: set {EXTRACTOR_KEY} "
            f"to the class for such paths ({', '.join(EXTRACTORS)}), or hoodie.datasource.hive_sync.partition_fields"
        )
    decoded = tuple(unquote(value) for value in values) if decode else values
    return tuple(value or _DEFAULT_VALUE for value in decoded)
