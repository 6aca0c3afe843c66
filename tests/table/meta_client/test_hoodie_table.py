"""Create and open tables; refuse by name what cannot be read or written; drop a metadata table the safe way."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from pathlib import Path

import pytest

from tagstream.table.errors import ConfigError, TableConfigMismatchError, TableNotFoundError, UnsupportedTableError
from tagstream.table.file_group.change_file import LoggingMode
from tagstream.table.keys.generators import default_generator
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.properties import new_properties, update_properties
from tagstream.table.meta_client.table_config import (
    CDC_KEY,
    CDC_MODE_KEY,
    COPY_ON_WRITE,
    MERGE_ON_READ,
    MergeMode,
    PartialUpdate,
    TableConfig,
)
from tagstream.table.read.snapshot import read_snapshot
from tagstream.table.storage.posix import PosixStorage
from tests.support.hudi_rs import read_table
from tests.support.table_version import table_version
from tests.table.reference import NAMES, expected, unpack

CONFIG = TableConfig("t", COPY_ON_WRITE, ("id",), ("part",), ("ver",), version=table_version())


def test_a_table_stays_in_the_storage_it_was_opened_in(tmp_path: Path) -> None:
    storage = PosixStorage(str(tmp_path / "t"), sync=False)
    table = HoodieTable.create(storage, CONFIG, 0)
    assert HoodieTable.open(storage).storage is storage
    assert table.reload().storage is storage
    assert pickle.loads(pickle.dumps(table)).storage == storage  # noqa: S301 (what Spark does with it)
    assert HoodieTable.open(str(tmp_path / "t")).storage == PosixStorage(str(tmp_path / "t"))


def test_create_then_open_gives_the_same_settings(tmp_path: Path) -> None:
    config = replace(CONFIG, hive_style=True, url_encode=True, database="db", timezone_utc=False)
    table = HoodieTable.create(str(tmp_path / "t"), config, 0)
    read = HoodieTable.open(str(tmp_path / "t")).config
    assert read == table.config
    assert read == replace(
        config, key_generator="org.apache.hudi.keygen.SimpleKeyGenerator", payload_class=read.payload_class
    )
    assert table.timeline().newest is None
    assert table.view().partitions() == []
    assert read_snapshot(table).num_rows == 0
    table.check_writable()
    assert pickle.loads(pickle.dumps(table)) == table  # noqa: S301 -- our own bytes: tasks get a table this way


def test_create_over_a_table_is_refused(tmp_path: Path) -> None:
    HoodieTable.create(str(tmp_path), CONFIG, 0)
    with pytest.raises(TableConfigMismatchError, match="already"):
        HoodieTable.create(str(tmp_path), CONFIG, 0)
    with pytest.raises(TableNotFoundError):
        HoodieTable.open(str(tmp_path / "elsewhere"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ordering_fields": ("a", "b"), "version": 6}, r"several ordering fields \(a, b\)"),
        ({"key_generator": "org.apache.hudi.keygen.TimestampBasedKeyGenerator"}, "TimestampBasedKeyGenerator"),
        ({"version": 7}, "version 6, 8 or 9, not 7"),
        ({"version": 10}, "version 6, 8 or 9, not 10"),
    ],
)
def test_create_refuses_by_name(change: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises((ConfigError, UnsupportedTableError), match=message):
        HoodieTable.create(str(tmp_path), replace(CONFIG, **change), 0)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_key_generator_follows_the_fields() -> None:
    keys, parts = ("a",), ("p",)
    kinds = {
        "Nonpartitioned": [(keys, ()), (("a", "b"), ())],
        "Simple": [(keys, parts)],
        "Complex": [(("a", "b"), parts), (keys, ("p", "q"))],
    }
    for kind, cases in kinds.items():
        for key_fields, partition_fields in cases:
            wanted = f"org.apache.hudi.keygen.{kind}KeyGenerator"
            assert default_generator(key_fields, partition_fields).class_name == wanted
            config = replace(CONFIG, record_key_fields=key_fields, partition_fields=partition_fields)
            properties = new_properties(config)
            assert TableConfig.from_properties(properties).key_generator == wanted
            for name in ("class", "type"):  # the type from version 8 on
                properties.pop(f"hoodie.table.keygenerator.{name}", None)
            assert TableConfig.from_properties(properties).key_generator == wanted


@pytest.mark.parametrize("name", NAMES)
def test_settings_of_real_tables(name: str, tmp_path: Path) -> None:
    base_path = unpack(name, tmp_path)
    table = HoodieTable.open(str(base_path))
    wanted = expected(base_path)
    assert table.config.version == wanted["table_version"]
    kind = {"COW": COPY_ON_WRITE, "MOR": MERGE_ON_READ}.get(wanted["table_type"], wanted["table_type"])
    assert table.config.table_type == kind
    assert table.config.ordering_fields == (("ts",) if name.startswith("flink_mor") else ("ver",))
    commit_time = name in ("cow_v6_native015_days", "mor_v6_global_simple_moves_015", "mor_v6_services_015")
    assert table.config.merge_mode is (MergeMode.COMMIT_TIME if commit_time else MergeMode.EVENT_TIME)
    schema = table.schema_json()
    assert schema is not None
    assert not [f for f in json.loads(schema)["fields"] if f["name"] == "_hoodie_record_key"]


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("mor_v8_global_record_index", "metadata table"),
        ("cow_v9_defaults_alltypes", "metadata table"),
        ("cow_v6_native015_days", r"metadata table \(files\).*hoodie\.metadata\.enable=false"),
    ],
)
def test_what_is_not_written_is_refused_by_name(name: str, problem: str, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedTableError, match=problem):
        HoodieTable.open(str(unpack(name, tmp_path))).check_writable()


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("hoodie.populate.meta.fields", "false", r"populate\.meta\.fields"),
        ("hoodie.table.keygenerator.class", "com.example.MyKeys", r"com\.example\.MyKeys"),
        ("hoodie.compaction.payload.class", "com.example.MyPayload", r"com\.example\.MyPayload"),
        (
            "hoodie.table.partial.update.mode",
            "IGNORE_DEFAULTS",
            r"partial\.update\.mode=IGNORE_DEFAULTS.*keep their values",
        ),
        ("hoodie.table.partial.update.mode", "NEW_KIND", r"partial\.update\.mode=NEW_KIND"),
        ("hoodie.table.metadata.partitions.inflight", "record_index", "record_index"),
    ],
)
def test_settings_that_cannot_be_written(key: str, value: str, problem: str, tmp_path: Path) -> None:
    table = HoodieTable.create(str(tmp_path), CONFIG, 0)
    custom = {"hoodie.record.merge.mode": "CUSTOM"} if "payload" in key else {}  # from version 8 on, the mode decides
    update_properties(table.storage, {key: value, **custom}, 0)
    with pytest.raises(UnsupportedTableError, match=problem):
        table.reload().check_writable()


@pytest.mark.parametrize(
    ("mode", "wanted"),
    [
        ("", LoggingMode.DATA_BEFORE_AFTER),
        ("op_key_only", LoggingMode.OP_KEY_ONLY),
        ("cdc_data_before", LoggingMode.DATA_BEFORE),
        ("NEW_MODE", None),
    ],
)
def test_logging_modes(mode: str, wanted: LoggingMode | None, tmp_path: Path) -> None:
    table = HoodieTable.create(str(tmp_path), CONFIG, 0)
    assert table.config.change_logging is None
    update_properties(table.storage, {CDC_KEY: "true", CDC_MODE_KEY: mode}, 0)
    table = table.reload()
    assert table.config.change_logging is wanted
    if wanted is not None:
        table.check_writable()
        return
    with pytest.raises(UnsupportedTableError, match=r"logging\.mode=NEW_MODE, and only OP_KEY_ONLY, "):
        table.check_writable()


def test_a_new_table_with_change_data_capture(tmp_path: Path) -> None:
    table = HoodieTable.create(str(tmp_path), replace(CONFIG, change_logging=LoggingMode.DATA_BEFORE), 0)
    assert table.config.change_logging is LoggingMode.DATA_BEFORE
    assert (table.config.raw[CDC_KEY], table.config.raw[CDC_MODE_KEY]) == ("true", "DATA_BEFORE")


@pytest.mark.parametrize("payload", ["PartialUpdateAvroPayload", "OverwriteNonDefaultsWithLatestAvroPayload"])
def test_payloads_that_keep_what_is_null(payload: str, tmp_path: Path) -> None:
    properties = new_properties(replace(CONFIG, version=8))
    name = f"org.apache.hudi.common.model.{payload}"
    properties |= {"hoodie.record.merge.mode": "CUSTOM", "hoodie.compaction.payload.class": name}
    config = TableConfig.from_properties(properties)
    assert config.partial_update is PartialUpdate.IGNORE_DEFAULTS
    assert config.is_event_time == (payload == "PartialUpdateAvroPayload")
    table = HoodieTable.create(str(tmp_path), replace(CONFIG, version=8), 0)
    update_properties(table.storage, properties, 0)
    with pytest.raises(UnsupportedTableError, match=f"payload.class={name}.*keep their values"):
        table.reload().check_writable()


def test_a_marker_of_values_that_were_not_sent() -> None:
    marker = {"hoodie.record.merge.property.hoodie.write.partial.update.unavailable.value": "?"}
    properties = new_properties(replace(CONFIG, version=9)) | marker
    assert TableConfig.from_properties(properties).unavailable_marker is None
    properties["hoodie.table.partial.update.mode"] = "FILL_UNAVAILABLE"
    assert TableConfig.from_properties(properties).unavailable_marker == "?"


@pytest.mark.parametrize("version", ["5", "7", "10"])
def test_unknown_versions_are_refused(version: str, tmp_path: Path) -> None:
    table = HoodieTable.create(str(tmp_path), CONFIG, 0)
    update_properties(table.storage, {"hoodie.table.version": version}, 0)
    with pytest.raises(UnsupportedTableError, match=f"version {version}"):
        table.reload()


def test_a_metadata_table_is_dropped_for_every_reader(tmp_path: Path) -> None:
    base_path = unpack("cow_v6_nonpart_simplebloom", tmp_path)
    table = HoodieTable.open(str(base_path))
    rows = read_snapshot(table)
    assert set(table.drop_metadata_table(0)) == {"column_stats", "files"}
    table = table.reload()
    assert not (base_path / ".hoodie" / "metadata").exists()
    assert not list((base_path / ".hoodie").glob(".hoodie.properties*.crc"))
    table.check_writable()
    assert table.drop_metadata_table(0) == ()
    assert read_snapshot(table).equals(rows)
    assert read_table(base_path).num_rows == rows.num_rows
