"""Errors of the admin command."""

from __future__ import annotations

from tagstream.table.errors import TagstreamError


class AdminError(TagstreamError):
    """The command cannot do what it was asked to; the text says why and what to do next."""
