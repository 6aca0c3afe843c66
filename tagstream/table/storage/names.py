"""Names below a storage's root, the same on every kind of store."""

from __future__ import annotations

from tagstream.table.errors import InvalidPartitionPathError


def joined(root: str, rel: str) -> str:
    """The full name of ``rel`` below ``root``; InvalidPartitionPathError when it would leave it. Empty: the root itself."""
    if rel == "":
        return root
    if rel.startswith("/") or "\0" in rel or any(part in ("", ".", "..") for part in rel.split("/")):
        raise InvalidPartitionPathError(f"path {rel!r} is not below {root}")
    return f"{root}/{rel}" if root != "/" else f"/{rel}"
