"""A register as files ``<name>.<n>``: the one with the greatest number is its value, the number its version.

For stores where a name can be taken once, by one writer, and where nothing else can be compared and swapped.
"""

from __future__ import annotations

from tagstream.table.errors import StaleVersionError
from tagstream.table.storage.storage import Register, Storage


def read_numbered(storage: Storage, rel: str) -> Register | None:
    """The newest value; None when there is none."""
    while True:
        newest = max(_numbers(storage, rel), default=None)
        if newest is None:
            return None
        try:
            return Register(storage.read(f"{rel}.{newest}"), str(newest))
        except FileNotFoundError:
            continue  # written and cleaned by another process since the listing


def swap_numbered(storage: Storage, rel: str, data: bytes, expected: str | None) -> str:
    """The exclusive creation of the next number: of two writers at once one wins, the other gets StaleVersionError."""
    stale = StaleVersionError(f"{storage.where(rel)} is no longer at version {expected}: another process wrote it")
    before = _numbers(storage, rel)
    if str(max(before, default=None)) != str(expected):
        raise stale
    number = max(before, default=0) + 1
    try:
        storage.write_new(f"{rel}.{number}", data)
    except FileExistsError:
        raise stale from None
    # It stood still while others wrote, and cleaned, this number and more. A listing may miss what is made meanwhile.
    if max(_numbers(storage, rel), default=None) != number:
        storage.delete(f"{rel}.{number}")
        raise stale
    storage.delete_many(f"{rel}.{n}" for n in before)
    return str(number)


def _numbers(storage: Storage, rel: str) -> list[int]:
    folder, _, name = rel.rpartition("/")
    found = (entry.name[len(name) + 1 :] for entry in storage.list(folder, (f"{name}.",)))
    return [int(number) for number in found if number.isdigit()]
