"""Tagstream: a streaming writer for Apache Hudi tables, and a reader of them.

>>> import tagstream
>>> query = tagstream.upsert(  # doctest: +SKIP
...     readings, "out/readings", "out/checkpoint", key="device", partition_by="room", order_by="seen"
... )
>>> tagstream.open_table("out/readings").scan(filter="room = 'hall'").to_pandas()  # doctest: +SKIP
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tagstream.version import VERSION

if TYPE_CHECKING:
    from tagstream import errors
    from tagstream.reading import Health, Scan, Table, open_table
    from tagstream.streaming.job.read_changes import read_changes
    from tagstream.streaming.job.upsert import upsert

__version__ = VERSION
__all__ = ["Health", "Scan", "Table", "errors", "open_table", "read_changes", "upsert"]

_PLACES = {
    "Health": "tagstream.reading",
    "Scan": "tagstream.reading",
    "Table": "tagstream.reading",
    "open_table": "tagstream.reading",
    "read_changes": "tagstream.streaming.job.read_changes",
    "upsert": "tagstream.streaming.job.upsert",
}


if not TYPE_CHECKING:  # else a type checker accepts every name as one of this module

    def __getattr__(name: str) -> Any:
        """A public name, imported on first use: reading needs no Spark, and the parts of the job need no reader."""
        if name == "errors":
            return import_module("tagstream.errors")
        if name not in _PLACES:
            raise AttributeError(f"module 'tagstream' has no attribute {name!r}; it has {', '.join(__all__)}")
        return getattr(import_module(_PLACES[name]), name)

    def __dir__() -> list[str]:
        return [*__all__, "__version__"]
