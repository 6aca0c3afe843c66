"""The sources of files in HoodieStreamer's words: their classes, the keys of CSV, and those of AWS DMS."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from tagstream.streaming.options.cli import load_options
from tagstream.streaming.options.options import Options
from tagstream.streaming.source.source_checks import check_columns
from tagstream.table.errors import ConfigError

PACKAGE = "org.apache.hudi.utilities.sources."
ARGUMENTS = [
    *("--target-base-path", "/t", "--target-table", "t", "--checkpoint-dir", "/c"),
    *("--hoodie-conf", "hoodie.datasource.write.recordkey.field=id"),
    *("--hoodie-conf", "hoodie.streamer.source.dfs.root=/in"),
    *("--hoodie-conf", "hoodie.table.ordering.fields=ts"),
]


def options(name: str, *conf: str, props: Path | None = None) -> Options:
    more = [word for pair in conf for word in ("--hoodie-conf", pair)]
    return load_options(
        [*ARGUMENTS, "--source-class", name, *more, *([] if props is None else ["--props", str(props)])]
    )


@pytest.mark.parametrize("prefix", ["", PACKAGE])
@pytest.mark.parametrize("name", ["Parquet", "Avro", "Csv", "Json"])
def test_a_class_by_its_short_and_its_full_name(name: str, prefix: str) -> None:
    made = options(f"{prefix}{name}DFSSource")
    assert (made.source.kind, made.files.form) == ("dfs", name.lower())
    assert made.source.limit == 512 << 20


def test_a_properties_file_of_hoodiestreamer(tmp_path: Path) -> None:
    """As users write it: in the old names, with a tab, and with keys of Spark's reader that have one meaning here."""
    props = tmp_path / "csv.properties"
    props.write_text(
        "hoodie.deltastreamer.csv.header=true\nhoodie.deltastreamer.csv.sep=\\t\nhoodie.deltastreamer.csv.multiLine=true\n"
        "hoodie.streamer.csv.nullValue=NA\nhoodie.streamer.csv.emptyValue=\nhoodie.streamer.csv.quote='\n"
        "hoodie.streamer.csv.inferSchema=true\nhoodie.streamer.csv.mode=PERMISSIVE\nhoodie.streamer.csv.encoding=utf-8\n"
    )
    csv = options("CsvDFSSource", props=props).csv
    assert (csv.header, csv.sep, csv.quote, csv.null_value, csv.empty_value) == (True, b"\t", b"'", "NA", "")


@pytest.mark.parametrize(("value", "char"), [("|", b"|"), (r"\t", b"\t"), (r"\u0001", b"\x01"), (r"\\", b"\\")])
def test_a_separator_in_sparks_notations(value: str, char: bytes) -> None:
    assert options("CsvDFSSource", f"hoodie.streamer.csv.sep={value}").csv.sep == char


def test_no_quotes_in_sparks_notation() -> None:
    assert options("CsvDFSSource", r"hoodie.streamer.csv.quote=\0").csv.quote == b""


@pytest.mark.parametrize(
    ("conf", "why"),
    [
        ("hoodie.streamer.csv.sep=::", "use one character of ASCII"),
        ('hoodie.streamer.csv.sep="', "it must differ from the quote"),
        ("hoodie.streamer.csv.encoding=UTF-16", "only UTF-8 is read"),
        ("hoodie.streamer.csv.mode=DROPMALFORMED", "it is never dropped"),
        ("hoodie.streamer.csv.timestampFormat=dd.MM.yyyy", "read in ISO 8601"),
        ("hoodie.streamer.csv.nanValue=nope", "NaN, Inf and -Inf"),
        ("tagstream.source.format=debezium-json", "contradicts --source-class"),
        ("hoodie.write.partial.update=true", None),
    ],
)
def test_what_csv_cannot_have(conf: str, why: str | None) -> None:
    if why is None:
        assert options("CsvDFSSource", conf).schema.partial_update
        return
    with pytest.raises(ConfigError, match=why):
        options("CsvDFSSource", conf)


def test_partial_updates_need_a_format_that_can_lack_fields() -> None:
    with pytest.raises(ConfigError, match="records of parquet"):
        options("ParquetDFSSource", "hoodie.write.partial.update=true")


def test_keys_of_csv_have_no_effect_with_another_source() -> None:
    assert any(
        "only CsvDFSSource reads it" in text for text in options("JsonDFSSource", "hoodie.streamer.csv.sep=|").warnings
    )


def test_a_store_that_only_spark_reads_is_refused() -> None:
    with pytest.raises(ConfigError, match="Spark reads this storage, and only lines of JSON"):
        options("ParquetDFSSource", "hoodie.streamer.source.dfs.root=oss://bucket/in")


DMS_PAYLOAD = "hoodie.datasource.write.payload.class=org.apache.hudi.common.model.AWSDmsAvroPayload"
DMS_TRANSFORMER = "hoodie.streamer.transformer.class=org.apache.hudi.utilities.transform.AWSDmsTransformer"


@pytest.mark.parametrize("name", ["ParquetDFSSource", "CsvDFSSource", "JsonDFSSource"])
def test_aws_dms(name: str) -> None:
    made = options(name, DMS_PAYLOAD, DMS_TRANSFORMER)
    assert (made.records.dms_deletes, made.records.dms_operation) == (True, True)
    assert made.source.transformers == ()
    assert any("a record with D in column Op is a delete" in text for text in made.warnings)
    assert not options(name).records.dms_deletes


def test_csv_needs_flat_columns_and_their_order() -> None:
    flat = pa.schema([("id", pa.string())])
    nested = pa.schema([("id", pa.string()), ("inner", pa.list_(pa.int64()))])
    with pytest.raises(ConfigError, match="column inner has a nested type"):
        check_columns(options("CsvDFSSource", "hoodie.streamer.csv.header=true"), nested)
    with pytest.raises(ConfigError, match="in the order of a schema"):
        check_columns(options("CsvDFSSource"), flat)
    with pytest.raises(ConfigError, match="no column Op"):
        check_columns(options("JsonDFSSource", DMS_PAYLOAD), flat)
    check_columns(options("ParquetDFSSource"), nested)


def test_the_payload_of_dms_does_not_fit_change_events() -> None:
    with pytest.raises(ConfigError, match="payload.class"):
        options("JsonDFSSource", DMS_PAYLOAD, "tagstream.source.format=debezium-json")
