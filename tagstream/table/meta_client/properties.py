"""``.hoodie/hoodie.properties``: the table's own settings as Java properties text, and how to change them safely.

The file is ISO-8859-1 with ``\\uXXXX`` escapes. Readers of other engines may look at any moment, so it is never missing.
While it changes there is a ``hoodie.properties.backup``, as with Hudi, whose writers take the main file away meanwhile.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache

import javaproperties

from tagstream.table.errors import CorruptFileError, TableNotFoundError
from tagstream.table.storage.storage import META_FOLDER, Storage

PROPERTIES_FILE = f"{META_FOLDER}/hoodie.properties"
BACKUP_FILE = f"{META_FOLDER}/hoodie.properties.backup"
CHECKSUM_KEY = "hoodie.table.checksum"


def table_checksum(database: str, table: str) -> str:
    """CRC-32 of ``<database>.<table>`` as decimal text: all that Hudi's checksum covers."""
    return str(zlib.crc32(f"{database}.{table}".encode()))


def parse(data: bytes) -> dict[str, str]:
    """The keys and values of properties text, escapes undone."""
    return dict(_parsed(data))


@lru_cache(maxsize=64)  # a table's file is read at each look at the table, and seldom changes
def _parsed(data: bytes) -> dict[str, str]:
    parsed: dict[str, str] = javaproperties.loads(data.decode("iso-8859-1"))
    return parsed


def dump(properties: Mapping[str, str], comment: str, at_ms: int) -> bytes:
    """Properties text with Java's two comment lines; ``at_ms`` is the time they tell."""
    at = datetime.fromtimestamp(at_ms / 1000, UTC)
    lines = [f"#{comment} {at.strftime('%Y-%m-%dT%H:%M:%S.%f')}Z", f"#{at.strftime('%a %b %d %H:%M:%S UTC %Y')}"]
    lines.extend(javaproperties.join_key_value(key, value) for key, value in sorted(properties.items()))
    return ("\n".join(lines) + "\n").encode("iso-8859-1")


def read_properties(storage: Storage) -> dict[str, str]:
    """The table's properties; TableNotFoundError without the file, CorruptFileError on a wrong checksum."""
    for rel in (PROPERTIES_FILE, BACKUP_FILE):
        try:
            properties = parse(storage.read(rel))
        except (FileNotFoundError, NotADirectoryError):
            continue
        _verify(properties, storage.where(rel))
        return properties
    raise TableNotFoundError(
        f"{storage.root} is no Hudi table: {PROPERTIES_FILE} is missing; check the base path or create the table first"
    )


def _verify(properties: Mapping[str, str], where: str) -> None:
    stored = properties.get(CHECKSUM_KEY)
    name = properties.get("hoodie.table.name")
    if not name:
        raise CorruptFileError(f"{where} has no hoodie.table.name: restore the file from its backup")
    if stored and stored != table_checksum(properties.get("hoodie.database.name", ""), name):
        raise CorruptFileError(
            f"{where}: {CHECKSUM_KEY} {stored} is not that of database and table name; the file was edited by hand "
            "or damaged: correct the names or remove the checksum line"
        )


def create_properties(storage: Storage, properties: Mapping[str, str], at_ms: int) -> None:
    """Write the file of a new table; FileExistsError when there is one."""
    storage.write_new(PROPERTIES_FILE, dump(properties, "Properties saved on", at_ms))


def replace_properties(storage: Storage, properties: Mapping[str, str], at_ms: int) -> None:
    """Write the file anew, by way of the backup: keys that are not named are gone."""
    recover_properties(storage)
    _replace(storage, properties, at_ms)


def update_properties(storage: Storage, changes: Mapping[str, str], at_ms: int) -> dict[str, str]:
    """Set keys in the file by way of the backup; returns all properties after it."""
    recover_properties(storage)
    updated = {**read_properties(storage), **changes}
    _replace(storage, updated, at_ms)
    return updated


def _replace(storage: Storage, properties: Mapping[str, str], at_ms: int) -> None:
    storage.write_new(BACKUP_FILE, storage.read(PROPERTIES_FILE))
    # In one step: hudi-rs does not know the backup, and finds no table where the file is missing.
    storage.replace(PROPERTIES_FILE, dump(properties, "Updated at", at_ms))
    storage.delete(BACKUP_FILE)


def recover_properties(storage: Storage) -> None:
    """Finish a change that was cut off: bring the backup back when the main file is missing, then remove it."""
    if not storage.exists(BACKUP_FILE):
        return
    if not storage.exists(PROPERTIES_FILE):
        storage.write_new(PROPERTIES_FILE, storage.read(BACKUP_FILE))
    storage.delete(BACKUP_FILE)
