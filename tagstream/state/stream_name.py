"""Names of streams: a topic's, a folder's, or one that was given. A folder has several spellings."""

from __future__ import annotations

from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit

from tagstream.table.storage.opening import open_storage, same_place


def same_stream(one: str, other: str) -> bool:
    """Whether two names are of one stream.

    A folder is named by its absolute path. Earlier versions kept it as it was spelled, so a relative path stands for each
    folder that it is the end of, and ``file:`` URLs and trailing slashes are paths, too. Links are followed. A single word
    may as well be a topic: it stands for a folder of the working directory only.
    """
    if one == other:
        return True
    first, second = _path(one), _path(other)
    if first.is_absolute() and second.is_absolute():
        return first == second or same_place(str(first), str(second))
    if first.is_absolute() == second.is_absolute() or ".." in (*first.parts, *second.parts):
        return False
    whole, end = (first, second) if first.is_absolute() else (second, first)
    if len(end.parts) < 2:
        return str(whole) == open_storage(str(end)).root
    return whole.parts[-len(end.parts) :] == end.parts


def _path(name: str) -> PurePosixPath:
    return PurePosixPath(unquote(urlsplit(name).path) if name.startswith("file:") else name)
