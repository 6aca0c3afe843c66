"""Properties that are declared at the fields of an option object."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import pytest

from tagstream.table.config import ConfigKey, Kind, Value
from tagstream.table.errors import ConfigError
from tagstream.table.option_fields import derived, key_name, keys_of, names_of, option, read, same_key


class Policy(StrEnum):
    COMMITS = "COMMITS"
    HOURS = "HOURS"


@dataclass(frozen=True)
class Cleaning:
    policy: Policy = option("clean.policy", Kind.CHOICE, "What is kept.", default="COMMITS", convert=Policy)
    kept_ms: int = option("clean.hours", Kind.INT, "Hours.", default=24, convert=lambda h: h * 3_600_000, minimum=1)
    codec: str = option("codec", Kind.STRING, "Codec.", default="zstd", unread="gzip", section="Files")
    port: int | None = derived(
        ConfigKey("port", Kind.INT, "Port."), ConfigKey("old.port", Kind.INT, "Older name."), default=None
    )
    folder: str | None = option("folder", Kind.PATH, "Folder.")
    merge_on_read: bool = False

    def __post_init__(self) -> None:
        if self.kept_ms < 0:
            raise ConfigError("clean.hours is negative")


@dataclass(frozen=True)
class Archiving:
    kept_ms: int = same_key(Cleaning, "kept_ms")


class Given(dict[str, Value]):
    """Values of properties by name."""

    def value(self, name: str) -> Value:
        return self[name]


DEFAULTS = Given({"clean.policy": "COMMITS", "clean.hours": 24, "codec": "zstd", "folder": None})


def test_the_default_of_a_field_is_that_of_its_property() -> None:
    assert Cleaning() == Cleaning(Policy.COMMITS, 24 * 3_600_000, "gzip", None, None, False)
    assert Archiving() == Archiving(24 * 3_600_000)


def test_fields_are_read_and_converted() -> None:
    found = read(Cleaning, Given(DEFAULTS | {"clean.policy": "HOURS", "clean.hours": 2, "folder": "/a"}), port=80)
    assert found == Cleaning(Policy.HOURS, 7_200_000, "zstd", 80, "/a", False)
    assert found.policy is Policy.HOURS
    assert read(Cleaning, DEFAULTS, kept_ms=1, merge_on_read=True) == Cleaning(
        kept_ms=1, codec="zstd", merge_on_read=True
    )
    assert read(Archiving, Given({"clean.hours": 3})).kept_ms == 10_800_000


def test_what_the_class_refuses_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"clean\.hours is negative"):
        read(Cleaning, Given(DEFAULTS | {"clean.hours": -1}))


def test_the_keys_of_a_class() -> None:
    keys = {key.name: key for key in keys_of(Cleaning, "Cleaning")}
    assert list(keys) == ["clean.policy", "clean.hours", "codec", "port", "old.port", "folder"]
    assert [key.section for key in keys.values()] == [
        "Cleaning",
        "Cleaning",
        "Files",
        "Cleaning",
        "Cleaning",
        "Cleaning",
    ]
    assert (keys["clean.hours"].default, keys["clean.hours"].minimum, keys["codec"].default) == (24, 1, "zstd")
    assert keys_of(Archiving, "Archiving") == ()
    assert names_of(Cleaning) == ("clean.policy", "clean.hours", "codec", "folder")
    assert (names_of(Archiving), key_name(Archiving, "kept_ms")) == (("clean.hours",), "clean.hours")
