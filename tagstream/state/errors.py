"""Errors of the key-group store."""

from __future__ import annotations

from tagstream.table.errors import TagstreamError


class StateError(TagstreamError):
    """The index in the checkpoint cannot be used as it is. The text names file and key group."""


class IndexDamagedError(StateError):
    """A durable file of the index is missing or differs from its reference. The index must be loaded again."""


class LocalStoreError(StateError):
    """The local cache of a key group cannot be used. It is removed and restored, so this is never fatal by itself."""


class LockedStoreError(LocalStoreError):
    """Another live process or thread has the local store open."""
