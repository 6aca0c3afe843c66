"""Rows that took values from another key's row before all of that key's events were read: where they are, to be mended.

After a change of key the new key's record may be read in an earlier batch than the old key's last events, which are in
another topic partition. What it took then may be old, or nothing. The old key's delete tells of it in the end.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.state.tag.fill import OWN
from tagstream.state.tag_batch import OP_DELETE, Completion, TagResult
from tagstream.streaming.tag.located import OP_MEND, image_name, located_table


def mends(schema: pa.Schema, good: pa.Table, result: TagResult, done: Completion) -> pa.Table:
    """A located record ``OP_MEND`` for each row that may have to be mended, where it is after the batch. A loop: rare rows.

    ``from_part``, ``from_file``: where the row was before the batch, null where the batch itself writes it. A record of the
    new key in this very batch knows what is in it: nothing is to be mended then.
    """
    asked = [(i, image) for i, image in enumerate(done.asked) if image.mended_by is not None]
    keys = pa.array([image.skey for _, image in asked], pa.binary())
    here = good.filter(pc.and_(pc.is_in(good.column("skey"), value_set=keys), good.column("old").is_valid()))
    known = set(zip(here.column("skey").to_pylist(), here.column("old").to_pylist(), strict=True))
    upsert = result.op != OP_DELETE
    places: list[tuple[bytes, bytes | None, tuple[str, str], tuple[str, str] | None, bytes]] = []
    for i, image in asked:
        if (image.skey, image.mended_by) in known:
            continue
        mine = result.skey == image.skey
        written, name = np.flatnonzero(upsert & mine), image_name(image)
        own = done.image_places[i] if done.image_held[i] == OWN else None
        if len(written):
            at = int(written[0])
            places.append((image.skey, image.mended_by, (result.partition[at], result.file_id[at]), None, name))
        elif own is not None and not mine.any():  # else the batch deletes it
            places.append((image.skey, image.mended_by, own, own, name))
    columns = {
        "dest_part": pa.array([to[0] for _, _, to, *_ in places], pa.string()),
        "dest_file": pa.array([to[1] for _, _, to, *_ in places], pa.string()),
        "op": pa.array(np.full(len(places), OP_MEND, np.int8)),
        "skey": pa.array([key for key, *_ in places], pa.binary()),
        "from_key": pa.array([old for _, old, *_ in places], pa.binary()),
        "from_image": pa.array([name for *_, name in places], pa.binary()),
        "from_part": pa.array([None if own is None else own[0] for *_, own, _ in places], pa.string()),
        "from_file": pa.array([None if own is None else own[1] for *_, own, _ in places], pa.string()),
    }
    return located_table(schema, len(places), columns)
