"""Default values of an Avro schema's top-level fields, which its Arrow form does not keep."""

from __future__ import annotations

import json
from typing import Any


def avro_defaults(avro_json: str) -> dict[str, Any]:
    """JSON defaults other than null, by field: what a record that lacks the field gets."""
    fields = json.loads(avro_json)["fields"]
    return {f["name"]: f["default"] for f in fields if f.get("default") is not None}
