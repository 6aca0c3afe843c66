"""The table of a start: made, or taken as it is, or given new properties while nobody has written to it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tagstream.streaming.job.schema_match import stream_schema
from tagstream.streaming.job.table_match import open_or_create, planned_table, turns_on_changes
from tagstream.streaming.options.cli import load_options
from tagstream.streaming.options.options import Options
from tagstream.table.errors import ConfigError, TableConfigMismatchError
from tagstream.table.file_group.change_file import LoggingMode
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.table_config import TableConfig
from tagstream.table.timeline import lease
from tagstream.table.timeline.commit_metadata import CommitMetadata
from tagstream.table.write import commit as protocol
from tests.support import events as ev
from tests.support.table_version import ordering_key, table_version

SCHEMA_KEY = "hoodie.streamer.schemaprovider.source.schema.file"


def options_of(folder: Path, schema: dict[str, object] | None = None, **conf: str) -> Options:
    (folder / "in").mkdir(exist_ok=True)
    (folder / "event.avsc").write_text(json.dumps(schema or ev.AVRO_SCHEMA))
    given = {**ev.properties(), "hoodie.table.name": "events", "hoodie.streamer.source.dfs.root": str(folder / "in"),
             SCHEMA_KEY: str(folder / "event.avsc"), **conf}  # fmt: skip
    argv = ["--target-base-path", str(folder / "table"), "--checkpoint-dir", str(folder / "c")]
    argv += ["--source-class", "JsonDFSSource"]
    return load_options(
        [*argv, *(word for key, value in given.items() for word in ("--hoodie-conf", f"{key}={value}"))]
    )


def test_nothing_is_made_by_planning(tmp_path: Path) -> None:
    planned = planned_table(options_of(tmp_path))
    assert planned.new
    assert planned.table.config.record_key_fields == ("id",)
    assert not (tmp_path / "table").exists()


def test_new_properties_replace_all_of_the_old_ones(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    old = TableConfig(
        "old", database="db", record_key_fields=("name",), partition_fields=("name", "part"), version=table_version()
    )
    HoodieTable.create(str(tmp_path / "table"), old, 0)
    options = options_of(tmp_path)
    table = open_or_create(options, 1_767_225_600_000)
    assert (table.config.name, table.config.database, table.config.ordering_fields) == ("events", "", ("ts",))
    assert f"{ordering_key()}=ts (was none)" in caplog.text
    assert sorted(p.name for p in (tmp_path / "table" / ".hoodie").glob("hoodie.properties*")) == ["hoodie.properties"]
    held = lease.current(table.storage)
    assert held is not None and held.released
    fresh = HoodieTable.create(str(tmp_path / "other"), planned_table(options).table.config, 0)
    assert fresh.config == table.config
    assert fresh.config.raw == table.config.raw
    assert planned_table(options).changes is None  # and again nothing is to be done


def committed(folder: Path, options: Options) -> HoodieTable:
    """The options' table with a commit of their schema."""
    table = open_or_create(options, 0)
    protocol.request(table, "20260101000000000", "commit")
    protocol.inflight(table, "20260101000000000", "commit")
    schema = stream_schema(options, table)[0]
    protocol.complete(table, "20260101000000000", "commit", CommitMetadata.build([], {}, schema))
    return HoodieTable.open(str(folder / "table"))


def with_field(**field: object) -> dict[str, object]:
    return {**ev.AVRO_SCHEMA, "fields": [*ev.AVRO_SCHEMA["fields"], field]}


def test_a_start_without_the_schema_file_has_the_same_defaults(tmp_path: Path) -> None:
    schema = with_field(name="n", type="int", default=5)
    table = committed(tmp_path, options_of(tmp_path, schema))
    first = stream_schema(options_of(tmp_path, schema), table)
    without = options_of(tmp_path, **{SCHEMA_KEY: ""})
    assert without.source.schema_file is None
    text, defaults = stream_schema(without, table)
    assert text == first[0]
    assert {f["name"]: f.get("default") for f in json.loads(defaults)["fields"]}["n"] == 5


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ({"name": "amount", "type": "string"}, "column 'amount' is string, in the table it is double; a column's type is"),
        ({"name": "n", "type": "int", "default": 5}, 'must be nullable, because older rows have no value (a default is for'
         ' records only): give it the type ["null", "int"] with the default null'),
    ],
)  # fmt: skip
def test_what_a_schema_file_may_not_change(tmp_path: Path, field: dict[str, object], words: str) -> None:
    table = committed(tmp_path, options_of(tmp_path))
    kept = [f for f in ev.AVRO_SCHEMA["fields"] if f["name"] != field["name"]]
    with pytest.raises(ConfigError) as e:
        stream_schema(options_of(tmp_path, {**ev.AVRO_SCHEMA, "fields": [*kept, field]}), table)
    assert words in str(e.value)


def test_an_upgrade_gives_the_custom_key_generator_its_kinds(tmp_path: Path) -> None:
    """Version 6 does not have them, the later ones need them, and the job knows them."""
    schema = {**ev.AVRO_SCHEMA, "fields": [*ev.AVRO_SCHEMA["fields"], {"name": "day", "type": "long"}]}
    conf = {
        "hoodie.datasource.write.partitionpath.field": "part:SIMPLE,day:TIMESTAMP",
        "hoodie.datasource.write.keygenerator.type": "CUSTOM",
        "hoodie.keygen.timebased.timestamp.type": "EPOCHMILLISECONDS",
        "hoodie.keygen.timebased.output.dateformat": "yyyy-MM-dd",
    }
    fields = "hoodie.table.partition.fields"
    old = open_or_create(options_of(tmp_path, schema, **conf, **{"hoodie.write.table.version": "6"}), 1_767_225_600_000)
    assert old.config.raw[fields] == "part,day"
    new = open_or_create(options_of(tmp_path, schema, **conf, **{"hoodie.write.table.version": "9"}), 1_767_225_700_000)
    assert (new.config.version, new.config.raw[fields]) == (9, "part:SIMPLE,day:TIMESTAMP")


def test_change_data_capture_of_an_existing_table(tmp_path: Path) -> None:
    conf = {"hoodie.table.cdc.enabled": "true", "hoodie.table.cdc.supplemental.logging.mode": "OP_KEY_ONLY"}
    table = committed(tmp_path, options_of(tmp_path))
    assert turns_on_changes(options_of(tmp_path), table) is None
    said = turns_on_changes(options_of(tmp_path, **conf), table)
    assert said is not None and "OP_KEY_ONLY: its change stream begins after 20260101000000000" in said
    assert HoodieTable.open(str(tmp_path / "table")).config.change_logging is None  # a dry run changes nothing
    opened = open_or_create(options_of(tmp_path, **conf), 0)
    assert opened.config.change_logging is LoggingMode.OP_KEY_ONLY
    held = lease.current(table.storage)
    assert held is not None and held.released
    assert open_or_create(options_of(tmp_path), 0).config == opened.config  # without the keys the table's own are kept
    with pytest.raises(TableConfigMismatchError, match=r"cdc\.enabled=True, but the job has False"):
        planned_table(options_of(tmp_path, **{"hoodie.table.cdc.enabled": "false"}))
    mode = {"hoodie.table.cdc.supplemental.logging.mode": "DATA_BEFORE"}
    with pytest.raises(TableConfigMismatchError, match=r"logging\.mode=OP_KEY_ONLY, but the job has DATA_BEFORE "):
        planned_table(options_of(tmp_path, **mode))


def test_a_new_table_with_change_data_capture(tmp_path: Path) -> None:
    conf = {"hoodie.table.cdc.enabled": "true"}
    assert open_or_create(options_of(tmp_path, **conf), 0).config.change_logging is LoggingMode.DATA_BEFORE_AFTER
