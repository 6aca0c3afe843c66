"""Keys of the TIMESTAMP and CUSTOM key generators, with Hudi's names and defaults (TimestampKeyGeneratorConfig)."""

from __future__ import annotations

from tagstream.table.config import ConfigKey, Kind
from tagstream.table.keys.time_partition import OLD_PREFIX, PREFIX

_SECTION = "Partitions by time"
_TYPES = ("UNIX_TIMESTAMP", "EPOCHMILLISECONDS", "EPOCHMICROSECONDS", "SCALAR", "DATE_STRING", "MIXED")
_TEXTS = {
    "timestamp.scalar.time.unit": "With SCALAR: NANOSECONDS, MICROSECONDS, MILLISECONDS, SECONDS, MINUTES, HOURS or DAYS. A "
    "date column is its days.",
    "input.dateformat": "With DATE_STRING: how the texts are written, as a pattern of Joda time, for example "
    "`yyyy-MM-dd'T'HH:mm:ss.SSSZ`; several with commas, the first that fits counts. A text of none of them is quarantined.",
    "input.dateformat.list.delimiter.regex": "What stands between several patterns.",
    "input.timezone": "The zone of texts that name none.",
    "output.dateformat": "The partition path, as a pattern of Joda time, for example `yyyy/MM/dd`: y, M, d, H, m, s, S, Z "
    "and text in quotes.",
    "output.timezone": "The zone of the partition path. Without it texts keep the time as it is written, and numbers are in "
    "UTC.",
    "timezone": "The zone of both, in place of the two above.",
}
_DEFAULTS = {"timestamp.scalar.time.unit": "`SECONDS`", "input.dateformat.list.delimiter.regex": "`,`"}


def _spelled(name: str) -> tuple[str, ...]:
    return (OLD_PREFIX + name, f"hoodie.streamer.keygen.timebased.{name}")


def _key(name: str, text: str) -> ConfigKey:
    return ConfigKey(
        PREFIX + name,
        Kind.STRING,
        text,
        default_note=_DEFAULTS.get(name, ""),
        aliases=_spelled(name),
        section=_SECTION,
    )


PARTITION_TIME_KEYS = (
    ConfigKey(
        f"{PREFIX}timestamp.type",
        Kind.CHOICE,
        "What the values of a partition field of times are: numbers of seconds, milliseconds, microseconds or of a unit "
        "since 1970, or texts.",
        default_note="required by the TIMESTAMP key generator, and by a field of kind TIMESTAMP of the CUSTOM one",
        values={name: name for name in _TYPES},
        aliases=_spelled("timestamp.type"),
        section=_SECTION,
    ),
    *(_key(name, text) for name, text in _TEXTS.items()),
)
