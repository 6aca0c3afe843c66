"""Small steps over Arrow columns that the decoders share."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc


def mask_of(values: pa.Array | pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    """A boolean column as a mask; null is false."""
    mask: npt.NDArray[np.bool_] = flat(pc.fill_null(values, False)).to_numpy(zero_copy_only=False)
    return mask


def nulls_of(values: pa.Array | pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    """The mask of the nulls."""
    mask: npt.NDArray[np.bool_] = flat(values.is_null()).to_numpy(zero_copy_only=False)
    return mask


def flat(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    """A column in one piece."""
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values


def text_where(mask: npt.NDArray[np.bool_], text: str) -> pa.Array:
    """``text`` where the mask is, else null."""
    return pc.if_else(pa.array(mask), pa.scalar(text, pa.string()), pa.scalar(None, pa.string()))


def only_where(mask: npt.NDArray[np.bool_], values: pa.Array) -> pa.Array:
    """``values`` where the mask is, else null."""
    return pc.if_else(pa.array(mask), values, pa.scalar(None, values.type))
