"""Entries against the key table: aliases, precedence, unknown and unsupported keys, Kafka and Spark pass-through."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

from tagstream.streaming.options.keys import kafka as kafka_keys
from tagstream.table.config import ConfigKey, Entry, Registry, Status, Value
from tagstream.table.errors import ConfigError

_OLD, _NEW = "hoodie.deltastreamer.", "hoodie.streamer."
_STRICT = ("index.", "tagstream.")


@dataclass
class Resolved:
    """What the user gave (``values`` by canonical name) over the defaults, and what is to be said about it."""

    registry: Registry
    values: dict[str, Value] = field(default_factory=dict)
    entries: dict[str, Entry] = field(default_factory=dict)
    kafka: dict[str, Entry] = field(default_factory=dict)
    spark_conf: dict[str, Entry] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def _key(self, name: str) -> ConfigKey:
        key = self.registry.find(name)
        if key is None:
            raise ValueError(f"{name} is not in the key table")
        return key

    def value(self, name: str) -> Value:
        """The effective value of a canonical name."""
        return self.values[name] if name in self.values else self._key(name).default

    def origin(self, name: str) -> str:
        """File and line or flag a value came from, or 'default'."""
        return self.entries[name].origin if name in self.entries else "default"

    def call(self, name: str) -> str:
        """How a user would write the key: its flag if it has one."""
        return self._key(name).flag or name

    def said(self, name: str) -> str:
        """The entry in the user's own words, for a message."""
        entry = self.entries.get(name)
        if entry is None:
            return f"{name} = {self.value(name)} (default)"
        value = kafka_keys.MASK if self._key(name).secret else kafka_keys.shown(entry.key, entry.value)
        return f"{entry.key} = {value} ({entry.origin})"

    @staticmethod
    def reported(key: ConfigKey) -> bool:
        """True for the keys that the list of effective options shows."""
        return key.status is Status.SUPPORTED

    def opt_text(self, name: str) -> str | None:
        return cast("str | None", self.value(name))

    def text(self, name: str) -> str:
        return cast(str, self.value(name))

    def texts(self, name: str) -> tuple[str, ...]:
        return cast("tuple[str, ...]", self.value(name))

    def flag(self, name: str) -> bool:
        return cast(bool, self.value(name))

    def opt_flag(self, name: str) -> bool | None:
        return cast("bool | None", self.value(name))

    def number(self, name: str) -> int:
        return cast(int, self.value(name))

    def opt_number(self, name: str) -> int | None:
        return cast("int | None", self.value(name))

    def real(self, name: str) -> float:
        return cast(float, self.value(name))


def resolve(registry: Registry, entries: Sequence[Entry]) -> Resolved:
    """Check every entry; a higher rank wins, and of one rank the later; ConfigError at the first that is wrong."""
    result = Resolved(registry)
    for entry in entries:
        name = entry.key
        if name.startswith(_OLD):
            name = _NEW + name[len(_OLD) :]
        name = name.removeprefix(kafka_keys.PREFIX)
        key = registry.find(name)
        if key is not None and not (key.flag_only and entry.origin != key.flag):
            _take_known(result, key, entry)
        elif (family := registry.family(name)) is not None:
            _refuse(entry, family.reason, family.harmless)
        elif name.startswith(_STRICT):
            raise ConfigError(f"{_shown(entry)}: unknown key{_hint(registry, name)}")
        elif name.startswith("hoodie."):
            result.warnings.append(f"{_shown(entry)}: unknown key, it has no effect{_hint(registry, name)}")
        elif name.startswith("spark."):
            _take_extra(result.spark_conf, name, entry)
        elif name.startswith("--"):
            raise ConfigError(f"{name} ({entry.origin}) is a flag of the command line and cannot be set there")
        else:
            _take_kafka(result, name, entry)
    for name, entry in result.entries.items():
        key = registry.find(name)
        assert key is not None
        if key.status is Status.SUPPORTED:
            result.values[name] = key.parse(entry.value, entry.origin)
    return result


def _take_known(result: Resolved, key: ConfigKey, entry: Entry) -> None:
    if key.status is Status.UNSUPPORTED:
        _refuse(entry, key.reason, key.harmless)
        return
    if key.status is Status.IGNORED:
        result.warnings.append(f"{_shown(entry)}: has no effect, {key.reason}")
        return
    before = result.entries.get(key.name)
    if before is not None and before.rank == entry.rank and before.key != entry.key and before.value != entry.value:
        raise ConfigError(
            f"{_shown(before)} and {_shown(entry)} are two names of one key with different values; remove one"
        )
    if before is None or entry.rank >= before.rank:
        result.entries[key.name] = entry


def _refuse(entry: Entry, reason: str, harmless: tuple[str, ...]) -> None:
    if entry.value.strip().lower() not in {value.lower() for value in harmless}:
        allowed = f" (it may be {' or '.join(harmless)})" if harmless else ""
        raise ConfigError(f"{_shown(entry)}: known but not supported{allowed}: {reason}")


def _take_kafka(result: Resolved, name: str, entry: Entry) -> None:
    if name in kafka_keys.REFUSED:
        raise ConfigError(f"{_shown(entry)}: refused, {kafka_keys.REFUSED[name]}; remove it")
    if name in kafka_keys.IGNORED:
        result.warnings.append(f"{_shown(entry)}: has no effect, {kafka_keys.IGNORED[name]}")
        return
    if name not in kafka_keys.KNOWN:
        near = difflib.get_close_matches(name, sorted(kafka_keys.KNOWN), n=1, cutoff=0.75)
        hint = f"; did you mean {near[0]}?" if near else ""
        result.warnings.append(f"{_shown(entry)}: not a consumer key of Kafka's own, passed on as it is{hint}")
    if name == "group.id":
        result.warnings.append(
            f"{_shown(entry)}: passed on, but offsets are kept in the checkpoint and not in the consumer group"
        )
    _take_extra(result.kafka, name, entry)


def _take_extra(into: dict[str, Entry], name: str, entry: Entry) -> None:
    before = into.get(name)
    if before is None or entry.rank >= before.rank:
        into[name] = entry


def _shown(entry: Entry) -> str:
    return f"{entry.key} = {kafka_keys.shown(entry.key, entry.value)} ({entry.origin})"


def _hint(registry: Registry, name: str) -> str:
    near = registry.nearest(name)
    return f"; did you mean {near}?" if near else ""
