"""Typed configuration keys: the name of a key, its values and its meaning.

The command line's help, the documentation page and the checks are made from one table of :class:`ConfigKey`, so they cannot
disagree. This module has only the common code; the job's keys are listed in ``streaming/options/registry.py``.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property

from tagstream.table.errors import ConfigError

Value = str | int | float | bool | tuple[str, ...] | None


class Kind(Enum):
    """The type of a key's value; the enum's value is the word used in help and documentation."""

    STRING = "text"
    BOOL = "true|false"
    INT = "integer"
    FLOAT = "number"
    BYTES = "bytes"
    LIST = "list, comma-separated"
    CHOICE = "one of"
    PATH = "path"
    REGEX = "regular expression"


class Status(Enum):
    """What this version does with a key that it knows."""

    SUPPORTED = "supported"
    IGNORED = "accepted, no effect"
    UNSUPPORTED = "refused"


class Concern(Enum):
    """What happens at a start when a key asks for something that this version does not implement.

    ANYWAY: the result is what the key asks for, or this writer does not use the key. BESIDE: the job does not do it, but
    the rows are the same without it, and another program can do it. CONTRADICTS: rows or files would differ from what the
    key asks for.
    """

    ANYWAY = "anyway"
    BESIDE = "beside"
    CONTRADICTS = "contradicts"


@dataclass(frozen=True)
class ConfigKey:
    """One option.

    ``name`` is Hudi's (or Flink's) property name. A name that begins with ``--`` exists on the command line only.
    ``default`` None means unset; ``default_note`` then says what happens. ``aliases`` are other property names of the key,
    ``flag_aliases`` other flags. ``values`` maps accepted spellings (upper case) to the canonical value of a CHOICE,
    ``refused_values`` known but unsupported ones to the reason.
    ``reason`` says why an IGNORED key has no effect, or what an UNSUPPORTED key misses and what to do about it. ``harmless``
    are values of an UNSUPPORTED key that change nothing; they pass silently. ``anyway`` maps values that ask for what this
    version always does to the reason. ``concern`` applies to the other values of an UNSUPPORTED key.
    ``may_be_empty``: an empty text is a value.
    """

    name: str
    kind: Kind
    doc: str
    default: Value = None
    default_note: str = ""
    aliases: tuple[str, ...] = ()
    flag: str | None = None
    flag_aliases: tuple[str, ...] = ()
    values: Mapping[str, str] = field(default_factory=dict)
    refused_values: Mapping[str, str] = field(default_factory=dict)
    minimum: float | None = None
    maximum: float | None = None
    secret: bool = False
    section: str = ""
    since: str = "0.1"
    status: Status = Status.SUPPORTED
    reason: str = ""
    harmless: tuple[str, ...] = ()
    anyway: Mapping[str, str] = field(default_factory=dict)
    concern: Concern = Concern.CONTRADICTS
    may_be_empty: bool = False

    @property
    def flags(self) -> tuple[str, ...]:
        """All flags of the key."""
        return (self.flag, *self.flag_aliases) if self.flag is not None else ()

    @property
    def flag_only(self) -> bool:
        """True when the key has no property name."""
        return self.name.startswith("--")

    @property
    def choices(self) -> tuple[str, ...]:
        """The canonical values of a CHOICE, in the order they were declared."""
        return tuple(dict.fromkeys(self.values.values()))

    def parse(self, text: str, origin: str) -> Value:
        """The typed value of ``text``. ConfigError names the key, the value and ``origin`` (file and line, or flag)."""
        try:
            return _PARSERS[self.kind](self, text.strip())
        except ValueError as e:
            shown = "****" if self.secret else repr(text)
            raise ConfigError(f"{self.name} = {shown} ({origin}): {e}") from None


_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}
# A properties file has no comments after a value: the comment is a part of the value.
_WITH_UNIT = re.compile(r"(?P<number>[0-9]{1,12})\s*(?P<unit>[A-Za-z]{0,3})\s*(#.*)?")


def _parse_bool(_key: ConfigKey, text: str) -> Value:
    lowered = text.lower()
    if lowered not in ("true", "false"):
        raise ValueError("must be true or false")
    return lowered == "true"


def _in_range(key: ConfigKey, number: float) -> None:
    if key.minimum is not None and number < key.minimum:
        raise ValueError(f"must not be less than {key.minimum:g}")
    if key.maximum is not None and number > key.maximum:
        raise ValueError(f"must not be greater than {key.maximum:g}")


def _parse_int(key: ConfigKey, text: str) -> Value:
    if not re.fullmatch(r"[+-]?[0-9]{1,19}", text):
        raise ValueError(f"must be a whole number{_number_hint(key, text)}")
    number = int(text)
    if abs(number) > 2**63 - 1:
        raise ValueError("must fit 64 bits")
    _in_range(key, number)
    return number


def _number_hint(key: ConfigKey, text: str) -> str:
    """A hint at the number that may be meant: ``text`` has a unit or a comment after it."""
    found = _WITH_UNIT.fullmatch(text)
    if found is None:
        return ""
    unit = found["unit"].upper().removesuffix("B").removesuffix("I")
    if key.kind is Kind.BYTES and unit in _UNITS:
        return f" of bytes; did you mean {int(found['number']) * _UNITS[unit]}?"
    return f"; did you mean {found['number']}?" if not found["unit"] else ""


def _parse_float(key: ConfigKey, text: str) -> Value:
    try:
        number = float(text)
    except ValueError:
        raise ValueError("must be a number") from None
    if not math.isfinite(number):
        raise ValueError("must be a finite number")
    _in_range(key, number)
    return number


def _parse_list(_key: ConfigKey, text: str) -> Value:
    items = tuple(item.strip() for item in text.split(",")) if text else ()
    if any(not item for item in items):
        raise ValueError("has an empty item between commas")
    if len(set(items)) != len(items):
        raise ValueError("names the same item twice")
    return items


def _parse_choice(key: ConfigKey, text: str) -> Value:
    spelled = text.upper()
    if spelled in key.values:
        return key.values[spelled]
    if spelled in key.refused_values:
        raise ValueError(f"is known but not supported: {key.refused_values[spelled]}")
    short = [name for name in key.choices if spelled and spelled == "".join(word[0] for word in name.split("_"))]
    near = short or difflib.get_close_matches(spelled, list(key.values), n=1)
    hint = f"; did you mean {key.values[near[0]]}?" if near else ""
    raise ValueError(f"must be one of {', '.join(key.choices)}{hint}")


def _parse_text(key: ConfigKey, text: str) -> Value:
    if not text and not key.may_be_empty:
        raise ValueError("must not be empty")
    return text


def _parse_regex(_key: ConfigKey, text: str) -> Value:
    try:
        re.compile(text)
    except re.error as e:
        raise ValueError(f"is not a regular expression: {e}") from None
    return text


_PARSERS: dict[Kind, Callable[[ConfigKey, str], Value]] = {
    Kind.STRING: _parse_text,
    Kind.PATH: _parse_text,
    Kind.BOOL: _parse_bool,
    Kind.INT: _parse_int,
    Kind.BYTES: _parse_int,
    Kind.FLOAT: _parse_float,
    Kind.LIST: _parse_list,
    Kind.CHOICE: _parse_choice,
    Kind.REGEX: _parse_regex,
}


@dataclass(frozen=True)
class Family:
    """A whole prefix of known but unsupported keys, e.g. everything under ``hoodie.clustering.``."""

    prefix: str
    reason: str
    harmless: tuple[str, ...] = ("false",)
    concern: Concern = Concern.CONTRADICTS


FROM_FILE, FROM_CONF, FROM_FLAG = 0, 1, 2  # ranks of an entry: a properties file, ``--hoodie-conf``, the key's own flag


@dataclass(frozen=True)
class Entry:
    """One ``key = value`` as the user wrote it. ``origin`` is the file and line, or the flag. Later entries win."""

    key: str
    value: str
    origin: str
    rank: int = 0


class Registry:
    """The table of keys, searched by name, alias and prefix."""

    def __init__(self, keys: Iterable[ConfigKey], families: Iterable[Family] = ()) -> None:
        self.keys = tuple(keys)
        self.families = tuple(sorted(families, key=lambda f: -len(f.prefix)))
        self._by_name: dict[str, ConfigKey] = {}
        for key in self.keys:
            for name in (key.name, *key.aliases):
                if name in self._by_name:
                    raise ValueError(f"the key table names {name} twice")
                self._by_name[name] = key

    def find(self, name: str) -> ConfigKey | None:
        """The key with this name or alias; None without one."""
        return self._by_name.get(name)

    def family(self, name: str) -> Family | None:
        """The unsupported family that a name belongs to; the longest prefix wins. None without one."""
        return next((f for f in self.families if name.startswith(f.prefix)), None)

    @cached_property
    def _names(self) -> list[str]:
        return [n for n, k in self._by_name.items() if not n.startswith("--") and k.status is not Status.UNSUPPORTED]

    def nearest(self, name: str) -> str | None:
        """The supported property name that is most similar to ``name``; None when none is close."""
        found = difflib.get_close_matches(name, self._names, n=1, cutoff=0.75)
        return found[0] if found else None
