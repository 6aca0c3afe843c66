"""Options whose properties are declared at their fields: the option object of a part of the job, and how it is filled.

A part of the job has one frozen dataclass for its options. Each field names its property with :func:`option`::

    @dataclass(frozen=True)
    class CleanOptions:
        commits: int = option("hoodie.clean.commits.retained", Kind.INT, "Commits whose files are kept.", default=10)

:func:`keys_of` gives the properties to the key table (``streaming/options/registry.py``), :func:`read` fills the
object from the values of a properties file. Fields without a property are plain fields of the dataclass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, field, fields, replace
from typing import Any, Protocol, TypeVar

from tagstream.table.config import ConfigKey, Kind, Value

T = TypeVar("T")
_OPTION = "option"  # the entry of a field's metadata
_KEYS_DEFAULT: Any = object()


class Values(Protocol):
    """Where the values of properties come from."""

    def value(self, name: str) -> Value:
        """The value of a property by its canonical name: as it was given, else the default."""


class _Option:
    """What a field declares: its properties, and which of them it reads with which function (None: it is derived)."""

    def __init__(self, keys: tuple[ConfigKey, ...], reads: str | None, convert: Callable[[Any], object] | None) -> None:
        self.keys = keys
        self.reads = reads
        self.convert = convert

    def of(self, value: Value) -> object:
        """The field's value for a value of the property; None stays None."""
        return value if value is None or self.convert is None else self.convert(value)


def option(
    name: str,
    kind: Kind,
    doc: str,
    *,
    default: Value = None,
    convert: Callable[[Any], object] | None = None,
    unread: object = _KEYS_DEFAULT,
    **more: Any,
) -> Any:
    """A dataclass field that is filled from the property ``name``.

    ``convert`` makes the field's value from the property's (an Enum, hours to milliseconds). The field's default is
    that of the property, or ``unread`` where an object that is made without properties has another one. ``more`` are
    further arguments of ``ConfigKey``.
    """
    declared = _Option((ConfigKey(name, kind, doc, default=default, **more),), name, convert)
    return field(default=declared.of(default) if unread is _KEYS_DEFAULT else unread, metadata={_OPTION: declared})


def derived(*keys: ConfigKey, default: Any = MISSING, shown: bool = True) -> Any:
    """A dataclass field that follows from several properties; :func:`read` is given its value.

    A key without a field of its own (one that only checks read) is declared at the field that it decides. Without a
    ``default`` the field is required. ``shown`` False: its value is a secret, and no text of the object has it.
    """
    return field(default=default, repr=shown, metadata={_OPTION: _Option(keys, None, None)})


def same_key(cls: type, name: str) -> Any:
    """A dataclass field that is filled from the property of another part: that of the field ``name`` of ``cls``."""
    other = next(f for f in fields(cls) if f.name == name)
    declared: _Option = other.metadata[_OPTION]
    return field(default=other.default, metadata={_OPTION: _Option((), declared.reads, declared.convert)})


def keys_of(cls: type, section: str = "") -> tuple[ConfigKey, ...]:
    """The properties that the fields of a class declare, in their order; ``section`` of those that name none."""
    return tuple(
        key if key.section else replace(key, section=section) for _, declared in _declared(cls) for key in declared.keys
    )


def names_of(cls: type) -> tuple[str, ...]:
    """The names of all properties that :func:`read` looks at for this class."""
    return tuple(declared.reads for _, declared in _declared(cls) if declared.reads is not None)


def key_name(cls: type, name: str) -> str:
    """The property of a field, for a message."""
    return next(declared.reads for f, declared in _declared(cls) if f.name == name and declared.reads is not None)


def read(cls: type[T], values: Values, **others: object) -> T:
    """The options of a class: each field that reads a property has its value, ``others`` are the remaining fields.

    A field in ``others`` is not read. A property that is not given and has no default leaves its field at the field's
    default. Raises what the class itself raises, ConfigError for values that do not fit.
    """
    reading = [
        (f.name, declared, values.value(declared.reads))
        for f, declared in _declared(cls)
        if declared.reads is not None and f.name not in others
    ]
    found = {name: declared.of(value) for name, declared, value in reading if value is not None}
    return cls(**found, **others)


def _declared(cls: type) -> list[tuple[Field[Any], _Option]]:
    metadata: list[tuple[Field[Any], Mapping[str, _Option]]] = [(f, f.metadata) for f in fields(cls)]
    return [(f, of[_OPTION]) for f, of in metadata if _OPTION in of]
