"""Tagstream: a streaming writer for Apache Hudi tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tagstream.version import VERSION

if TYPE_CHECKING:
    from tagstream.streaming.frame.upsert import upsert

__version__ = VERSION
__all__ = ["upsert"]


if not TYPE_CHECKING:  # a checker would take every name for one of this module

    def __getattr__(name: str) -> Any:
        """``tagstream.upsert``, imported when it is asked for: most of the package needs no Spark."""
        if name != "upsert":
            raise AttributeError(f"module 'tagstream' has no attribute {name!r}")
        from tagstream.streaming.frame.upsert import upsert

        return upsert
