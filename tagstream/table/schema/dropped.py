"""The schema of records whose partition columns a table leaves out of its files."""

from __future__ import annotations

import json
from collections.abc import Collection

import pyarrow as pa

from tagstream.table.schema.schema import arrow_to_avro


def record_schema(text: str, dropped: Collection[str], given: pa.Schema | None = None) -> str:
    """The Avro schema of records: that of the stored rows, with the partition columns that these lack.

    ``given``: the schema that records are said to have; the columns have its types and its order. Without it they are texts
    behind the others, as Hudi reads them.
    """
    if not dropped:
        return text
    record = json.loads(text)
    fields = record["fields"]
    told = [] if given is None else given.names
    for name in sorted(dropped, key=lambda name: told.index(name) if name in told else len(told)):
        if given is None or name not in told:
            fields.append({"name": name, "type": ["null", "string"], "default": None})
            continue
        before = set(told[: told.index(name)])
        place = max((n + 1 for n, field in enumerate(fields) if field["name"] in before), default=0)
        fields.insert(place, arrow_to_avro(pa.schema([given.field(name)]), "t")["fields"][0])
    return json.dumps(record, separators=(",", ":"), ensure_ascii=False)
