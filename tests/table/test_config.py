"""The key machinery: typed values, ranges, choices, and the messages of what is wrong."""

from __future__ import annotations

import pytest

from tagstream.table.config import ConfigKey, Family, Kind, Registry
from tagstream.table.errors import ConfigError


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        (ConfigKey("k", Kind.BOOL, ""), " TRUE ", True),
        (ConfigKey("k", Kind.INT, ""), "-12", -12),
        (ConfigKey("k", Kind.FLOAT, ""), "1e-9", 1e-9),
        (ConfigKey("k", Kind.LIST, ""), " a, b ", ("a", "b")),
        (ConfigKey("k", Kind.LIST, ""), "", ()),
        (ConfigKey("k", Kind.CHOICE, "", values={"A": "a", "B": "b"}), "b", "b"),
        (ConfigKey("k", Kind.REGEX, ""), "2024-.*", "2024-.*"),
    ],
)
def test_values(key: ConfigKey, text: str, value: object) -> None:
    assert key.parse(text, "--k") == value


@pytest.mark.parametrize(
    ("key", "text", "message"),
    [
        (ConfigKey("k", Kind.BOOL, ""), "yes", "k = 'yes' (f.properties:3): must be true or false"),
        (ConfigKey("k", Kind.INT, ""), "1.5", "must be a whole number"),
        (ConfigKey("k", Kind.INT, ""), "9223372036854775808", "must fit 64 bits"),
        (ConfigKey("k", Kind.INT, "", minimum=1), "0", "must not be less than 1"),
        (ConfigKey("k", Kind.INT, "", maximum=10), "11", "must not be greater than 10"),
        (ConfigKey("k", Kind.FLOAT, ""), "nan", "must be a finite number"),
        (ConfigKey("k", Kind.FLOAT, ""), "x", "must be a number"),
        (ConfigKey("k", Kind.LIST, ""), "a,,b", "empty item"),
        (ConfigKey("k", Kind.LIST, ""), "a,a", "the same item twice"),
        (ConfigKey("k", Kind.PATH, ""), " ", "must not be empty"),
        (ConfigKey("k", Kind.REGEX, ""), "(", "is not a regular expression"),
        (ConfigKey("k", Kind.CHOICE, "", values={"GZIP": "gzip"}), "gzp", "did you mean gzip?"),
        (
            ConfigKey("k", Kind.CHOICE, "", values={"A": "a"}, refused_values={"B": "because"}),
            "b",
            "supported: because",
        ),
        (ConfigKey("k", Kind.INT, "", secret=True), "hunter2", "k = **** (f.properties:3)"),
    ],
)
def test_errors_name_key_value_and_place(key: ConfigKey, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as e:
        key.parse(text, "f.properties:3")
    assert message in str(e.value)
    assert "hunter2" not in str(e.value)


def test_registry_finds_by_name_alias_and_longest_prefix() -> None:
    key = ConfigKey("hoodie.a.name", Kind.STRING, "", aliases=("hoodie.b.name",))
    registry = Registry([key], [Family("hoodie.x.", "one"), Family("hoodie.x.y.", "two")])
    assert registry.find("hoodie.b.name") is key
    assert registry.find("hoodie.c") is None
    assert registry.nearest("hoodie.a.nmae") == "hoodie.a.name"
    assert registry.nearest("something.else") is None
    found = registry.family("hoodie.x.y.z")
    assert found is not None
    assert found.reason == "two"


def test_registry_refuses_a_name_given_twice() -> None:
    with pytest.raises(ValueError, match="twice"):
        Registry([ConfigKey("a", Kind.STRING, ""), ConfigKey("b", Kind.STRING, "", aliases=("a",))])
