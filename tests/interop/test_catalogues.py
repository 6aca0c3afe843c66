"""Entries of a catalogue against those of Hudi's HiveSyncTool 1.2.0, field by field; Spark with Hudi reads through both."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bench.peers import home as peers
from tagstream.catalog.hive_metastore import HiveMetastore
from tagstream.catalog.options import SyncOptions
from tagstream.catalog.sync import sync_table
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tests.interop.hudi_program import METASTORE
from tests.interop.hudi_spark import HudiSpark
from tests.support.hive_metastore import MetastoreServer
from tests.table.reference import unpack

pytestmark = pytest.mark.hudi_jar
HIVE = "hoodie.datasource.hive_sync."
DAYS = "org.apache.hudi.hive.SlashEncodedDayPartitionValueExtractor"
SPARK_VERSION = "3.5.9"
# All types, both table types, versions 6 and 9, hive style, several partition fields, days, none.
TABLES = {
    "cow_v6_hive_alltypes": None, "cow_v9_defaults_alltypes": None, "mor_v6_compacted": None, "mor_v9_defaults": None,
    "cow_v6_complexkey_replace": None, "cow_v6_native015_days": DAYS, "cow_v6_nonpart_simplebloom": None,
    "mor_v9_services": None,
}  # fmt: skip


@dataclass(frozen=True)
class Place:
    """A metastore with Hudi on Spark over it, and one of Hive 4."""

    hudi: HudiSpark
    old: HiveMetastore
    new: HiveMetastore


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    peers.set_up()
    folder = tmp_path_factory.mktemp("catalogues")
    with (
        MetastoreServer(folder / "hms3", "3.1.3") as old,
        MetastoreServer(folder / "hms4", "4.0.1") as new,
        HudiSpark("1.2.0", folder, settings={METASTORE: old.uri}) as hudi,
    ):
        found = Place(hudi, HiveMetastore([old.uri], "root"), HiveMetastore([new.uri], "root"))
        yield found
        found.old.close()
        found.new.close()


@pytest.mark.parametrize("name", TABLES)
def test_an_entry_is_hudi_s(place: Place, tmp_path: Path, name: str) -> None:
    table = HoodieTable.open(str(unpack(name, tmp_path)))
    options = SyncOptions(database="ours", table=name, extractor=TABLES[name], spark_version=SPARK_VERSION)
    done = [sync_table(table, catalog, options, _user()) for catalog in (place.old, place.new)]
    names = [entry.name for entry in done[0].entries]
    assert len(names) == (3 if table.config.is_merge_on_read else 1)
    place.hudi.sync(table.base_path, _properties(table, "hudi", name))
    ours = {each: dump(place.old, "ours", each) for each in names}
    assert list(differences(ours, {each: dump(place.old, "hudi", each) for each in names})) == []
    assert list(differences(ours, {each: dump(place.new, "ours", each) for each in names})) == []
    # Hudi's tool takes our entries for its own, and changes nothing.
    place.hudi.sync(table.base_path, _properties(table, "ours", name))
    assert list(differences(ours, {each: dump(place.old, "ours", each) for each in names})) == []
    assert [e.action for e in sync_table(table, place.old, options, _user()).entries] == ["unchanged"] * len(names)


@pytest.mark.parametrize(
    "name", ["cow_v6_hive_alltypes", "cow_v9_defaults_alltypes", "mor_v6_compacted", "mor_v9_defaults"]
)
def test_spark_reads_by_name(place: Place, tmp_path: Path, name: str) -> None:
    table = HoodieTable.open(str(unpack(name, tmp_path)))
    options = SyncOptions(database="named", table=name, spark_version=SPARK_VERSION)
    sync_table(table, place.old, options, _user())
    wanted = sorted(place.hudi.read(table.base_path).column("_hoodie_record_key").to_pylist())
    found = place.hudi.sql(table.base_path, f"select _hoodie_record_key as k from named.{name}")
    assert sorted(row["k"] for row in found) == wanted
    if table.config.partition_fields:
        paths = place.hudi.sql(table.base_path, f"show partitions named.{name}")
        assert len(paths) == len(place.old.partitions(_entry(place.old, "named", name)))


def _user() -> str:
    """HiveSyncTool's owner is the user of its process."""
    import getpass

    return getpass.getuser()


def _properties(table: HoodieTable, database: str, name: str) -> dict[str, str]:
    fields = ",".join(table.config.partition_fields)
    extractor = TABLES[name] or (
        "org.apache.hudi.hive." + ("MultiPartKeysValueExtractor" if fields else "NonPartitionedExtractor")
    )
    return {
        f"{HIVE}mode": "hms",
        f"{HIVE}database": database,
        f"{HIVE}table": name,
        f"{HIVE}partition_extractor_class": extractor,
        "hoodie.meta_sync.spark.version": SPARK_VERSION,
        **({f"{HIVE}partition_fields": fields} if fields else {}),
    }


def _entry(catalog: HiveMetastore, database: str, name: str) -> Any:
    found = catalog.table(database, name)
    assert found is not None
    return found


def dump(catalog: HiveMetastore, database: str, name: str) -> dict[str, Any]:
    """All that a metastore has of a table, but for its database and what it adds itself."""
    raw = catalog._raw(database, name)
    found = {
        "owner": raw.owner,
        "type": raw.tableType,
        "partition keys": _columns(raw.partitionKeys),
        "parameters": _own(raw.parameters),
        "descriptor": _descriptor(raw.sd),
    }
    if raw.partitionKeys:
        parts = catalog._call(lambda client: client.get_partitions(database, name, -1), "partitions")
        found["partitions"] = {"/".join(each.values): (_descriptor(each.sd), _own(each.parameters)) for each in parts}
    return found


def differences(one: Any, other: Any, at: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Where two dumps differ, and both values."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted(one.keys() | other.keys()):
            yield from differences(one.get(key), other.get(key), f"{at}/{key}")
    elif one != other:
        yield at, one, other


def _own(parameters: dict[str, str]) -> dict[str, str]:
    """Without the time of the last change, which the metastore writes, and what Hive 4 adds to every entry."""
    added = (
        "transient_lastDdlTime",
        "TRANSLATED_TO_EXTERNAL",
        "bucketing_version",
        "external.table.purge",
        "numFilesErasureCoded",
    )
    return {key: value for key, value in sorted(parameters.items()) if key not in added}


def _columns(columns: Any) -> list[tuple[str, str, str]]:
    return [(each.name, each.type, each.comment) for each in columns]


def _descriptor(sd: Any) -> dict[str, Any]:
    return {
        "columns": _columns(sd.cols),
        "location": sd.location,
        "formats": (sd.inputFormat, sd.outputFormat),
        "serde": (sd.serdeInfo.serializationLib, dict(sorted(sd.serdeInfo.parameters.items()))),
        "buckets": (sd.numBuckets, sd.bucketCols, [each.col for each in sd.sortCols or ()]),
        "compressed": sd.compressed,
        "parameters": sd.parameters,
    }
