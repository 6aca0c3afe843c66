"""What a scan passes on of the keys that it has read."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import get_args

import pyarrow as pa
import pytest

from tagstream.bootstrap.scan import SliceKeys
from tagstream.bootstrap.spill import spill_schema
from tagstream.bootstrap.tasks import _located
from tagstream.state.codec import ORDERING_UNKNOWN, TOMBSTONE
from tagstream.state.layout import StateLayout
from tagstream.state.ordering import OrderingKind
from tagstream.table.storage.opening import open_storage


@pytest.mark.parametrize("kind", get_args(OrderingKind))
@pytest.mark.parametrize("deleted", [True, False])
def test_keys_without_ordering_values(tmp_path: Path, kind: OrderingKind, deleted: bool) -> None:
    """As deletes of change streams are, which say no order of their own, be the table's ordering field text or number."""
    spec = SimpleNamespace(layout=StateLayout(open_storage(str(tmp_path)), str(tmp_path), kind), labels=(0, 1))
    batch, groups = _located(spec, SliceKeys(pa.array(["a", "b"]), None, deleted), 3, "p0")  # type: ignore[arg-type]
    assert batch.schema == spill_schema(kind)
    assert batch.column("flags").to_pylist() == [ORDERING_UNKNOWN | (TOMBSTONE if deleted else 0)] * 2
    assert len(groups) == 2
