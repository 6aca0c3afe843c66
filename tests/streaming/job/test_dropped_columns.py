"""Partition columns that are to be left out of the files: what keeps a job from starting, for new tables and old ones."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tagstream.streaming.job.preflight import SparkNeeds, check_start
from tagstream.streaming.job.schema_match import stream_schema
from tagstream.streaming.job.table_match import open_or_create
from tagstream.streaming.options.options import Options
from tagstream.streaming.record_formats import source_format
from tagstream.table.errors import ConfigError, TableConfigMismatchError, TagstreamError
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.table_config import DROP_KEY, TableConfig
from tagstream.table.schema.schema import avro_to_arrow
from tests.streaming.job.test_table_match import SCHEMA_KEY, options_of
from tests.support import events as ev
from tests.support.table_version import table_version

NOW = 1_767_225_600_000


def start(options: Options) -> None:
    """What a start and a dry run look at first."""
    check_start(options, {}, NOW, SparkNeeds(java=False, connector=False, master=None))


@pytest.mark.parametrize(
    ("conf", "problem"),
    [
        ({"hoodie.table.ordering.fields": "part"}, "ordering field part is a partition column"),
        ({"hoodie.datasource.write.recordkey.field": "id,part"}, "record key field part is a partition column"),
        ({"hoodie.datasource.write.partitionpath.field": ""}, "no partition field"),
        (
            {"hoodie.datasource.write.partitionpath.field": "at"},
            "partition column 'at' is timestamp.*docs/",
        ),
        (
            {
                "hoodie.datasource.write.partitionpath.field": "ts",
                "hoodie.table.ordering.fields": "amount",
                "hoodie.datasource.write.keygenerator.type": "TIMESTAMP",
                "hoodie.keygen.timebased.timestamp.type": "EPOCHMILLISECONDS",
                "hoodie.keygen.timebased.output.dateformat": "yyyy/MM/dd",
            },
            "the partition paths of ts are made of times",
        ),
        (
            {"hoodie.index.type": "GLOBAL_BLOOM", "hoodie.bloom.index.update.partition.path": "false"},
            r"stay in their old partition \(hoodie\.bloom\.index\.update\.partition\.path=false\)",
        ),
    ],
)
def test_a_new_table_is_refused_in_one_line(conf: dict[str, str], problem: str, tmp_path: Path) -> None:
    at = {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}}
    schema: dict[str, Any] = {**ev.AVRO_SCHEMA, "fields": [*ev.AVRO_SCHEMA["fields"], at]}
    options = options_of(tmp_path, schema, **{DROP_KEY: "true", **conf})
    with pytest.raises(TagstreamError, match=problem) as e:
        start(options)
    assert DROP_KEY in str(e.value)
    assert not (tmp_path / "table").exists()


def test_a_new_table_has_the_property_and_the_stream_the_whole_schema(tmp_path: Path) -> None:
    options = options_of(tmp_path, **{DROP_KEY: "true"})
    start(options)
    table = open_or_create(options, NOW)
    assert table.config.drops_partition_columns
    assert "part" in avro_to_arrow(stream_schema(options, table)[0]).names


@pytest.mark.parametrize("drops", [True, False])
def test_an_existing_table_is_as_it_is(drops: bool, tmp_path: Path) -> None:
    existing(tmp_path, drops=drops)
    start(options_of(tmp_path))
    start(options_of(tmp_path, **{DROP_KEY: str(drops).lower()}))
    told = rf"{DROP_KEY}={drops}, but the job has {not drops} .*remove the option"
    with pytest.raises(TableConfigMismatchError, match=told):
        start(options_of(tmp_path, **{DROP_KEY: str(not drops).lower()}))


def test_types_that_only_records_bring_would_be_lost(tmp_path: Path) -> None:
    table = existing(tmp_path, drops=True)
    options = options_of(tmp_path)
    options = replace(options, source=replace(options.source, schema_file=None))
    schema = avro_to_arrow(stream_schema(options, table)[0])
    assert schema.names[-1] == "part"
    assert schema.field("part").type == pa.string()
    bringing = replace(options, records=replace(options.records, format=source_format("debezium-json")))
    with pytest.raises(ConfigError, match=rf"{DROP_KEY}=true.*set {SCHEMA_KEY}"):
        stream_schema(bringing, table)
    assert stream_schema(bringing, existing(tmp_path / "other", drops=False))


def existing(folder: Path, *, drops: bool) -> HoodieTable:
    """A table that was made with a schema, which a job takes as it is."""
    config = TableConfig(
        "events",
        record_key_fields=("id",),
        partition_fields=("part",),
        ordering_fields=("ts",),
        version=table_version(),
        create_schema=json.dumps(ev.AVRO_SCHEMA),
        drops_partition_columns=drops,
    )
    return HoodieTable.create(str(folder / "table"), config, NOW)
