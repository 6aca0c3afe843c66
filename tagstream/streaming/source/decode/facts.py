"""What an Avro schema says of fields beyond their Arrow types: defaults, the symbols of enums, uuids; at every depth."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tagstream.table.schema.avro_defaults import default_of

ITEM = "item"  # the elements of an array, the values of a map


@dataclass(frozen=True)
class Facts:
    """``default``: JSON default other than null. ``children``: of a record by name, of an array or map its ``ITEM``.

    ``aliases``: other names that a column's values may come under.
    """

    default: Any = None
    symbols: tuple[str, ...] | None = None
    is_uuid: bool = False
    children: Mapping[str, Facts] = field(default_factory=dict)
    aliases: tuple[str, ...] = ()

    @property
    def restricts(self) -> bool:
        """Whether not every text fits."""
        return self.symbols is not None or self.is_uuid


NO_FACTS = Facts()


def avro_facts(avro_json: str) -> dict[str, Facts]:
    """The facts of a record schema's fields, by name."""
    record = json.loads(avro_json)
    aliases = {f["name"]: tuple(f.get("aliases") or ()) for f in record["fields"]}
    found = _of(record, {}, "", None).children
    return {name: replace(known, aliases=aliases[name]) for name, known in found.items()}


def _of(kind: Any, named: dict[str, Any], space: str, default: Any) -> Facts:
    """Facts of a schema; ``named``: the named types that were defined before it, by full name."""
    if isinstance(kind, list):
        kind = next((k for k in kind if k != "null"), "null")
    if isinstance(kind, str):
        known = named.get(kind) or named.get(f"{space}.{kind}")
        if known is None:
            return Facts(default)
        return Facts(default, known.symbols, known.is_uuid, known.children)
    what = kind["type"]
    if what in ("record", "error", "enum", "fixed"):
        name = kind["name"] if "." in kind["name"] or not kind.get("namespace", space) else None
        name = name or f"{kind.get('namespace', space)}.{kind['name']}"
        found = Facts()
        if what == "enum":
            found = Facts(None, tuple(kind["symbols"]))
        elif what != "fixed":
            inner = name.rpartition(".")[0]
            fields = {f["name"]: _of(f["type"], named, inner, default_of(f)) for f in kind["fields"]}
            found = Facts(None, children=fields)
        named[name] = found
        return Facts(default, found.symbols, found.is_uuid, found.children)
    if what in ("array", "map"):
        return Facts(default, children={ITEM: _of(kind["items" if what == "array" else "values"], named, space, None)})
    if isinstance(what, (dict, list)):
        return _of(what, named, space, default)
    return Facts(default, is_uuid=kind.get("logicalType") == "uuid" and what == "string")
