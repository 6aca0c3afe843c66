from __future__ import annotations

import pyarrow as pa
import pytest

from tagstream.streaming.source.decode.key_decoder import record_keys, state_keys


@pytest.mark.parametrize("global_index", [True, False])
@pytest.mark.parametrize("keys", [["a", "b"], [None, "b", "é\u4e16"], ["a", None], [None, None], []])
def test_record_keys_of_state_keys(global_index: bool, keys: list[str | None]) -> None:
    partitions = pa.array(["p=1" if key else None for key in keys], pa.string())
    skeys = state_keys(pa.array(keys, pa.string()), partitions, global_index=global_index)
    assert record_keys(skeys).to_pylist() == keys
