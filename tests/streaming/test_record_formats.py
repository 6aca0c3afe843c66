"""The formats of records: one list of them, and a decoder for each."""

from __future__ import annotations

import pytest

from tagstream.streaming.options.registry import REGISTRY
from tagstream.streaming.record_formats import FORMATS, chosen_formats, source_format
from tagstream.streaming.source.decode import make_format
from tagstream.streaming.source.decode.make_format import FormatRules
from tagstream.table.errors import ConfigError


def test_each_format_has_a_decoder() -> None:
    assert set(make_format._MAKERS) == set(FORMATS)


def test_the_option_has_the_formats_that_can_be_chosen() -> None:
    key = REGISTRY.find("tagstream.source.format")
    assert key is not None
    assert tuple(key.values.values()) == chosen_formats()
    assert set(FORMATS) - set(chosen_formats()) == {"rows", "csv", "parquet", "avro-files", "hudi", "protobuf"}


def test_an_unknown_format_is_an_error() -> None:
    """It was read as Debezium before."""
    with pytest.raises(ConfigError, match="'xml' are not known; known formats are json, debezium-json"):
        source_format("xml")
    with pytest.raises(ConfigError, match="'xml' are not known"):
        _ = FormatRules("xml").kind
