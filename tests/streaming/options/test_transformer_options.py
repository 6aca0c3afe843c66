"""Transformers and dead letters by their keys: chains, ids, files, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tagstream.streaming.options.cli import load_options
from tagstream.streaming.options.options import Options
from tagstream.table.errors import ConfigError

SCHEMA = "hoodie.streamer.schemaprovider.source.schema.file=/x.avsc"
CLASS, SQL = "hoodie.streamer.transformer.class", "hoodie.streamer.transformer.sql"
QUERY = f"{SQL}=SELECT a FROM <SRC>"
BASE = [
    "--target-base-path", "/data/t", "--checkpoint-dir", "/data/c", "--target-table", "t",
    "--hoodie-conf", "hoodie.datasource.write.recordkey.field=id", "--hoodie-conf", "bootstrap.servers=b:9092",
    "--hoodie-conf", "hoodie.streamer.source.kafka.topic=orders",
]  # fmt: skip


def load(*conf: str, flags: tuple[str, ...] = ()) -> Options:
    return load_options([*BASE, *flags, *(x for c in conf for x in ("--hoodie-conf", c))])


def test_a_chain_with_ids(tmp_path: Path) -> None:
    (tmp_path / "f.sql").write_text("SELECT 1 FROM <SRC>; SELECT 2 FROM <SRC>")
    o = load(
        SCHEMA,
        f"{CLASS}=a:SqlQueryBasedTransformer,b:org.apache.hudi.utilities.transform.FlatteningTransformer,"
        "c:SqlFileBasedTransformer,d:SqlQueryBasedTransformer",
        f"{SQL}.a=SELECT x FROM <SRC>",
        f"hoodie.deltastreamer.transformer.sql.file.c={tmp_path}/f.sql",
        QUERY,
        "tagstream.transformer=my.module:function",
    )
    assert [(t.kind, t.text) for t in o.source.transformers] == [
        ("sql", "SELECT x FROM <SRC>"),
        ("flatten", ""),
        ("sql", "SELECT 1 FROM <SRC>; SELECT 2 FROM <SRC>"),
        ("sql", "SELECT a FROM <SRC>"),
        ("python", "my.module:function"),
    ]
    assert o.source.transformers[0].where == "SqlQueryBasedTransformer a"


def test_a_query_without_a_class_is_told() -> None:
    o = load(QUERY)
    assert o.source.transformers == () and any("without effect" in text for text in o.warnings)


@pytest.mark.parametrize(
    ("conf", "text"),
    [
        ((SCHEMA, f"{CLASS}=a:SqlQueryBasedTransformer,FlatteningTransformer", QUERY), "have an id .* or none"),
        ((SCHEMA, f"{CLASS}=a:FlatteningTransformer,a:IdentityTransformer"), "each transformer needs a different id"),
        ((SCHEMA, f"{CLASS}=com.mine.Transformer"), "a class of Java .*tagstream.transformer=module:function"),
        ((SCHEMA, f"{CLASS}=SqlQueryBasedTransformer"), "sql is missing"),
        ((SCHEMA, f"{CLASS}=SqlQueryBasedTransformer", f"{SQL}=SELECT 1"), "does not name <SRC>"),
        ((SCHEMA, f"{CLASS}=SqlFileBasedTransformer", f"{SQL}.file=/nowhere.sql"), "nowhere.sql"),
        ((SCHEMA, "tagstream.transformer=nomodule"), "use module:function"),
        ((f"{CLASS}=FlatteningTransformer",), "source.schema.file is missing"),
        ((SCHEMA, f"{CLASS}=FlatteningTransformer", "tagstream.source.format=debezium-json"), "cannot be transformed"),
        ((SCHEMA, f"{CLASS}=FlatteningTransformer", f"{SQL}.other=SELECT 1"), "none of the given transformers"),
        (("hoodie.errortable.enable=true",), "set hoodie.errortable.base.path, or tagstream.errortable.topic"),
        (("hoodie.errortable.enable=true", "tagstream.errortable.topic=orders"), "the job reads this topic"),
        (("hoodie.errortable.enable=true", "hoodie.errortable.base.path=/data/t/"), "the job's own table"),
    ],
)
def test_what_is_refused(conf: tuple[str, ...], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        load(*conf)


def test_a_dry_run_starts_no_spark() -> None:
    with pytest.raises(ConfigError, match="--dry-run does not start Spark"):
        load(SCHEMA, f"{CLASS}=FlatteningTransformer", flags=("--dry-run",))


def test_dead_letters() -> None:
    o = load(
        "hoodie.errortable.enable=true", "hoodie.errortable.base.path=/data/errors", "tagstream.errortable.topic=dlq"
    )
    assert (o.dead_letters.base_path, o.dead_letters.topic, o.dead_letters.may_fail) == ("/data/errors", "dlq", False)
    assert o.run.commit_on_errors
    off = load("hoodie.errortable.base.path=/data/errors")
    assert not off.dead_letters.enabled and not off.run.commit_on_errors
    assert any("hoodie.errortable.enable is not true" in text for text in off.warnings)
