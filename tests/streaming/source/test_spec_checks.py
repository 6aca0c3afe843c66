"""What options and table must say together: an order where records come out of theirs, keys that an index can hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tagstream.streaming.options.cli import load_options
from tagstream.streaming.source.decode_spec import DecodeSpec
from tagstream.table.errors import ConfigError
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.table_config import TableConfig
from tagstream.table.storage.posix import PosixStorage

AVRO = """{"type": "record", "name": "r", "fields": [
    {"name": "id", "type": "string"}, {"name": "ts", "type": "long"}]}"""


def spec(folder: Path, conf: dict[str, str], *flags: str, ordering: tuple[str, ...] = (), **config: Any) -> DecodeSpec:
    """Of a new table and a topic; ``config``: more of the table's properties."""
    known = TableConfig(
        name="t", table_type="COPY_ON_WRITE", record_key_fields=("id",), partition_fields=(),
        ordering_fields=ordering, create_schema=AVRO, version=6,
    )  # fmt: skip
    table = HoodieTable.create(PosixStorage(str(folder / "t"), sync=False), known, 1_767_225_600_000)
    given = {"hoodie.streamer.source.kafka.topic": "t", "bootstrap.servers": "127.0.0.1:1", **conf}
    words = [
        "--source-class",
        "JsonKafkaSource",
        "--target-base-path",
        table.base_path,
        "--checkpoint-dir",
        str(folder / "c"),
    ]
    pairs = [word for key, value in given.items() for word in ("--hoodie-conf", f"{key}={value}")]
    return DecodeSpec.for_table(table, AVRO, AVRO, load_options([*words, *pairs, *flags]))


DEBEZIUM = {"tagstream.source.format": "debezium-json"}
BLOOM = {"hoodie.index.type": "GLOBAL_BLOOM"}


@pytest.mark.parametrize(
    ("conf", "ordering", "is_ordered"),
    [
        ({}, (), False),
        ({}, ("ts",), True),
        (BLOOM, ("ts",), True),
        (DEBEZIUM, (), True),  # by the position in the log, which the state index keeps
        ({**DEBEZIUM, **BLOOM}, (), False),
        ({**DEBEZIUM, "tagstream.debezium.order": "arrival"}, (), False),
    ],
)
def test_old_records_are_sent_again_only_where_their_order_is_known(
    tmp_path: Path, conf: dict[str, str], ordering: tuple[str, ...], is_ordered: bool
) -> None:
    assert spec(tmp_path / "without", conf, ordering=ordering).longest_key is None
    if is_ordered:
        spec(tmp_path / "with", conf, "--replay-quarantine", ordering=ordering)
        return
    with pytest.raises(
        ConfigError, match=r"--replay-quarantine .* would overwrite newer rows\. Set hoodie\.table\.ordering"
    ):
        spec(tmp_path / "with", conf, "--replay-quarantine", ordering=ordering)


@pytest.mark.parametrize(
    ("conf", "longest"),
    [
        ({}, None),
        ({"hoodie.metadata.record.index.enable": "true"}, 32_767),
        ({"hoodie.index.type": "RECORD_INDEX"}, 32_767),
        ({"hoodie.index.type": "HBASE", "hoodie.index.hbase.table": "h"}, 32_767),
        (
            {
                "hoodie.index.class": "org.apache.hudi.index.hbase.RebalancedSparkHoodieHBaseIndex",
                "hoodie.index.hbase.table": "h",
                "hoodie.index.hbase.bucket.number": "16",
            },
            32_765,
        ),
    ],
)
def test_the_longest_key_that_an_index_holds(tmp_path: Path, conf: dict[str, str], longest: int | None) -> None:
    assert spec(tmp_path, conf).longest_key == longest
