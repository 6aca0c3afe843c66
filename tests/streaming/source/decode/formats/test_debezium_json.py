"""Captured Debezium JSON against the rows that the source's own SELECT gave."""

from __future__ import annotations

import pytest

from tests.streaming.source.decode.formats.decoding import Model, decoder
from tests.support import cdc

ORDERS = cdc.schema_by_id(6)


@pytest.mark.parametrize("folder", ["json", "jsonschema"])
def test_orders_are_what_select_gave_at_each_phase(folder: str) -> None:
    decode, model = decoder(ORDERS, ["id"], ["day"]), Model()
    for phase, messages in cdc.phases(folder, "shop.orders"):
        model.apply(decode, messages)
        wrong = cdc.differences(list(model.rows.values()), cdc.truth("shop.orders", phase), ["id"], ["span"])
        assert not wrong, (phase, wrong[:5])
    assert not model.bad
    assert model.skipped > 5, "tombstones behind their deletes"
