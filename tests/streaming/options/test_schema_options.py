"""Hudi's keys about columns that do not come, and where changes of the schema come from."""

from __future__ import annotations

import pytest

from tagstream.table.errors import ConfigError
from tests.streaming.options.test_options import conf, load

NULL, RECONCILE = "hoodie.write.set.null.for.missing.columns", "hoodie.datasource.write.reconcile.schema"
DROP = "hoodie.datasource.write.schema.allow.auto.evolution.column.drop"
FILE = "hoodie.streamer.schemaprovider.source.schema.file"


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ((), "null"),
        ((f"{NULL}=true",), "null"),
        ((f"{NULL}=false",), "fail"),
        ((f"{DROP}=true",), "drop"),
        ((f"{DROP}=true", f"{NULL}=true"), "null"),
        ((f"{DROP}=true", f"{NULL}=false"), "drop"),
        ((f"{NULL}=false", f"{RECONCILE}=true"), "null"),
        ((f"{DROP}=true", f"{RECONCILE}=true"), "null"),
    ],
)
def test_columns_that_do_not_come(given: tuple[str, ...], missing: str) -> None:
    assert load(*conf(*given)).schema.missing == missing


def test_where_changes_come_from() -> None:
    assert load().schema.by_records
    assert not load(*conf(f"{FILE}=/a.avsc")).schema.by_records
    assert load(*conf(f"{FILE}=/a.avsc", "tagstream.schema.evolution=records")).schema.by_records
    assert not load(*conf("tagstream.schema.evolution=given")).schema.by_records
    with pytest.raises(ConfigError, match="tagstream.schema.evolution"):
        load(*conf("tagstream.schema.evolution=sometimes"))
    assert load(*conf("hoodie.datasource.write.new.columns.nullable=true")).schema.new_nullable


def test_partial_updates_are_upserts() -> None:
    assert load(*conf("hoodie.write.partial.update=true")).schema.partial_update
    for operation in ("INSERT_OVERWRITE", "INSERT", "DELETE"):
        with pytest.raises(ConfigError, match=f"{operation} keeps no values of a row"):
            load("--op", operation, *conf("hoodie.write.partial.update=true", "hoodie.index.type=BLOOM"))
