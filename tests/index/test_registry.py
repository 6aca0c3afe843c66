"""The list of indexes: what each class says of itself, and how the one that is asked for is made."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tagstream.index.base import HoodieIndex
from tagstream.index.hbase_index import HbaseIndex, RebalancedHbaseIndex
from tagstream.index.hbase_options import HbaseOptions
from tagstream.index.registry import INDEX_TYPES, STATE, IndexOptions, make_index, type_of_class
from tagstream.table.errors import ConfigError
from tests.support.paths import ROOT


def asked(kind: str, **more: bool) -> IndexOptions:
    """Options of any index: only HBASE needs some."""
    return IndexOptions(kind, hbase=HbaseOptions("t") if kind == "HBASE" else None, **more)


@pytest.mark.parametrize("kind", INDEX_TYPES)
def test_each_index_is_made_by_its_class(kind: str) -> None:
    index = make_index(asked(kind), ("id",))
    assert type(index) is INDEX_TYPES[kind]
    assert index.name == kind


@pytest.mark.parametrize("kind", INDEX_TYPES)
def test_each_class_of_hudi_stands_for_one_index(kind: str) -> None:
    for name in INDEX_TYPES[kind].java_classes:
        assert type_of_class(name) == type_of_class(name.rpartition(".")[2]) == kind


def test_the_state_index_and_unknown_ones() -> None:
    assert make_index(asked(STATE), ("id",)) is None
    with pytest.raises(ConfigError, match="FLINK_STATE: there is no such index"):
        make_index(asked("FLINK_STATE"), ("id",))
    with pytest.raises(ConfigError, match="not a class of this writer"):
        type_of_class("com.example.OwnIndex")


def test_row_keys_of_hbase_are_plain_or_rebalanced() -> None:
    assert type(make_index(asked("HBASE"), ("id",))) is HbaseIndex
    assert type(make_index(asked("HBASE", rebalanced=True), ("id",))) is RebalancedHbaseIndex
    with pytest.raises(ConfigError, match="hoodie.index.hbase.table"):
        make_index(IndexOptions("HBASE"), ("id",))


def test_the_client_of_hbase_is_needed_for_that_index_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    program = "import sys; from tagstream.index import registry; sys.exit('happybase' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)
    monkeypatch.setitem(sys.modules, "happybase", None)
    with pytest.raises(ConfigError, match="the package happybase is missing"):
        make_index(asked("HBASE"), ("id",))


def test_an_index_says_what_is_fixed_about_it() -> None:
    for kind, index in INDEX_TYPES.items():
        assert issubclass(index, HoodieIndex)
        assert index.java_classes, kind
        assert index.is_global or not index.moves_by_default, "rows move between partitions under a global index alone"


def test_the_page_of_indexes_has_each_of_them() -> None:
    rows = re.findall(r"^\| (`[^|]*) \| (yes|no)\b", (ROOT / "docs/guide/indexes.md").read_text(), re.MULTILINE)
    told = {kind: word == "yes" for names, word in rows for kind in re.findall(r"`([A-Z_]+)`", names)}
    assert {kind: told.get(kind) for kind in INDEX_TYPES} == {kind: i.is_global for kind, i in INDEX_TYPES.items()}
