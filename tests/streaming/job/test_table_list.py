"""Which tables a job of several has: names, files, places, and what is refused."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from tagstream.streaming.job.multi_table import NamedTable, names_several, table_list
from tagstream.table.errors import ConfigError

COMMON = """hoodie.streamer.ingestion.tablesToBeIngested=shop.orders,shop.carts,visits
hoodie.streamer.ingestion.shop.carts.configFile={folder}/elsewhere.properties
bootstrap.servers=b:9092
hoodie.datasource.write.recordkey.field=id
hoodie.table.ordering.fields=ts
"""
ORDERS = "hoodie.streamer.source.kafka.topic=orders\nhoodie.datasource.write.recordkey.field=order_id\n"
CARTS = "hoodie.streamer.source.kafka.topic=carts\nhoodie.streamer.ingestion.targetBasePath=/data/other/carts\n"
VISITS = "hoodie.streamer.source.kafka.topic=visits\nhoodie.table.name=v\n"


def listed(folder: Path, *more: str, common: str = COMMON) -> list[NamedTable]:
    (folder / "conf").mkdir(exist_ok=True)
    (folder / "common.properties").write_text(common.format(folder=folder))
    (folder / "conf" / "shop_orders_config.properties").write_text(ORDERS)
    (folder / "elsewhere.properties").write_text(CARTS)
    (folder / "conf" / "default_visits_config.properties").write_text(VISITS)
    argv = ["--props", str(folder / "common.properties"), "--config-folder", str(folder / "conf")]
    return table_list([*argv, "--base-path-prefix", "/data/t", "--checkpoint-dir", "/data/c", *more], "x")


def test_each_table_has_its_file_over_the_common_one(tmp_path: Path) -> None:
    orders, carts, visits = listed(tmp_path, "--table-type", "MERGE_ON_READ", "--continuous")
    assert [t.name for t in (orders, carts, visits)] == ["shop.orders", "shop.carts", "default.visits"]
    assert [t.options.table.base_path for t in (orders, carts, visits)] == [
        "/data/t/shop/orders", "/data/other/carts", "/data/t/default/visits",
    ]  # fmt: skip
    assert [t.options.run.checkpoint_dir for t in (orders, carts, visits)] == [
        "/data/c/shop/orders", "/data/c/shop/carts", "/data/c/default/visits",
    ]  # fmt: skip
    assert [t.options.table.record_key_fields for t in (orders, carts, visits)] == [("order_id",), ("id",), ("id",)]
    assert [t.options.table.name for t in (orders, carts, visits)] == ["orders", "carts", "v"]
    assert [t.options.table.database for t in (orders, carts, visits)] == ["shop", "shop", None]
    assert {t.options.table.type for t in (orders, carts, visits)} == {"MERGE_ON_READ"}
    assert all(t.options.run.continuous for t in (orders, carts, visits))


def test_the_old_names_of_the_keys(tmp_path: Path) -> None:
    tables = listed(tmp_path, common=COMMON.replace("hoodie.streamer.ingestion.", "hoodie.deltastreamer.ingestion."))
    assert [t.name for t in tables] == ["shop.orders", "shop.carts", "default.visits"]
    assert tables[1].options.kafka.topic == "carts"


@pytest.mark.parametrize(
    ("more", "common", "text"),
    [
        (["--target-base-path", "/x"], COMMON, "--target-base-path is for one table"),
        ([], "bootstrap.servers=b:9092\n", "tablesToBeIngested is missing"),
        ([], COMMON.replace("visits", "shop.orders"), "name each table once"),
        ([], COMMON.replace("visits", "visit"), "default_visit_config.properties"),
        (
            [],
            COMMON.replace("ordering.fields=ts", "ordering.field=ts\nindex.nope=1"),
            r"table shop.orders .*index.nope",
        ),
        (["--bootstrap-only"], COMMON, "--bootstrap-only is for one table"),
        (["--status-port", "9321"], COMMON, "the page of one table"),
    ],
)
def test_what_is_refused(tmp_path: Path, more: list[str], common: str, text: str) -> None:
    with pytest.raises(ConfigError, match=f"(?s){text}"):
        listed(tmp_path, *more, common=common)


@pytest.mark.parametrize(("other", "is_shared"), [("/in/a", True), ("/in/a/b", True), ("/in", True), ("/in/ab", False)])
def test_a_folder_that_two_tables_read_is_not_cleaned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: str, is_shared: bool
) -> None:
    root = "hoodie.streamer.source.dfs.root"
    monkeypatch.setitem(globals(), "ORDERS", f"{ORDERS}{root}=/in/a\ntagstream.source.dfs.clean=delete\n")
    monkeypatch.setitem(globals(), "VISITS", f"{VISITS}{root}={other}\n")
    common = COMMON.replace("shop.orders,shop.carts,visits", "shop.orders,visits")
    with (
        nullcontext()
        if not is_shared
        else pytest.raises(
            ConfigError, match="tables shop.orders and default.visits read the same files, .*=delete would remove them"
        )
    ):
        assert len(listed(tmp_path, "--source-class", "JsonDFSSource", common=common)) == 2


def test_a_command_line_of_one_table_is_none_of_several() -> None:
    assert not names_several(["--target-base-path", "/x", "--hoodie-conf", "a=b"])
    assert names_several(["--config-folder=/x"])
