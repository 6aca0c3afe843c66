"""Everything that a table's metadata table says, as one flat dict of named fields; see ``fields`` for the form.

Beside instants, file ids and sizes the write tokens in names are put in words, for they number tasks; so are places that
hold a file id as numbers, and keys that hold the hash of a file's name.
"""

from __future__ import annotations

import base64
import json
import re
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from tagstream.table.file_group.bloom import BloomFilter
from tagstream.table.file_group.log_file import LogBlock, scan_log_file
from tagstream.table.file_group.log_format import BlockType
from tagstream.table.file_group.names import PARTITION_METAFILE, parse_log_file_name
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.metadata.hfile import TRAILER_SIZE, HFile, trailer_fields
from tagstream.table.metadata.record_encoding import instant_ms
from tagstream.table.metadata.records import decode, file_id
from tests.interop.fields import (
    Fields,
    Named,
    Words,
    files_of,
    flat,
    metafile_fields,
    properties_fields,
    timeline_fields,
)
from tests.support.stored import stored
from tests.table.metadata.hfiles import filter_of

TOKEN = re.compile(r"(?<=_)\d+-\d+-\d+(?=_|$|\.hfile)")
SEQNO = re.compile(r"(?<=>_)\d+_\d+")
PLACE = ("fileIdHighBits", "fileIdLowBits")
TRAILER = (
    "properties at", "indexes at", "index bytes", "raw bytes", "blocks", "meta blocks", "entries", "levels", "first block",
    "last block", "comparator", "codec",
)  # fmt: skip


class MetadataWords(Words):
    """Puts what differs by its nature in words, in values of the metadata table."""

    def __init__(
        self, table: HoodieTable, instants: Iterable[str], own: Iterable[str], file_ids: Iterable[str]
    ) -> None:
        """``instants`` of the data, ``own`` ones of the metadata table that are not the data's."""
        times, self._root = list(instants), Path(table.base_path)
        super().__init__(times, file_ids)
        uuids = {name[:36]: word for name, word in self.of.items() if len(name) > 36}
        self.also({time: f"<M{n}>" for n, time in enumerate(own)} | uuids)
        self.moments = {
            instant_ms(time, table.config.timezone_utc): word for time, word in self.of.items() if "I" in word
        }
        self.sizes = {path.name: path.stat().st_size for path in self._root.rglob("*") if path.is_file()}
        self._hashes = {file_id(name): self(name) for name in self.sizes}

    def __call__(self, value: Any) -> Any:
        """The value with what is known in it replaced."""
        if isinstance(value, str):
            value = value.replace(f"file:{self._root}", "<root>").replace(str(self._root), "<root>")
            return SEQNO.sub("<n>", TOKEN.sub("<token>", super().__call__(value)))
        return super().__call__(value)

    def key(self, key: str) -> str:
        """A record's key; of a key that ends with the hash of a file's name, the name."""
        (found, *_) = [h for h in self._hashes if key.endswith(h)] or [""]
        return key.removesuffix(found) + self._hashes[found] if found else str(self(key))


def metadata_fields(table: HoodieTable, words: MetadataWords) -> Fields:
    """The fields of a table's metadata table, and of what the table itself says of it."""
    root = Path(table.base_path)
    own = root / ".hoodie" / "metadata"
    found = {
        f"table {name}": value for name, value in properties_fields(root) if "metadata" in name or ".index." in name
    }
    definitions = root / ".hoodie" / ".index_defs" / "index.json"
    found |= dict(flat(json.loads(definitions.read_text()), "definitions")) if definitions.exists() else {}
    found |= dict(properties_fields(own))
    found |= dict(timeline_fields(own, None, words))
    for path in files_of(own):
        where = words(str(path.relative_to(own)))
        if path.name == PARTITION_METAFILE:
            found |= dict(metafile_fields(path, where, words))
        elif path.suffix == ".hfile":
            found |= dict(_hfile(HFile.open(*stored(path)), f"base {where}", words))
        elif parse_log_file_name(path.name):
            found |= dict(_log(path, f"log {where}", words))
        else:
            found[f"file {where}"] = "unknown"
    return found


def _log(path: Path, name: str, words: MetadataWords) -> Named:
    blocks = list(scan_log_file(*stored(path)))
    if [block.type for block in blocks] == [BlockType.DELETE] and not len(blocks[0].deletes().keys):
        name = f"{name} (empty)"  # in an index by partition, beside another one that differs by its token alone
    yield f"{name} blocks", [block.type.name for block in blocks]
    for n, block in enumerate(blocks):
        label = f"{name} block {n}"
        yield from ((f"{label} header {key}", words(value)) for key, value in block.header.items())
        yield from _block(block, label, words)


def _block(block: LogBlock, label: str, words: MetadataWords) -> Named:
    if block.type is BlockType.HFILE_DATA:
        yield from _hfile(HFile.of_block(block), label, words, block.header["SCHEMA"])
    else:
        deletes = block.deletes()
        yield f"{label} content", block.content()
        yield f"{label} keys", [words.key(key) for key in deletes.keys.to_pylist()]
        yield f"{label} partitions", deletes.partition_paths.to_pylist()


def _hfile(file: HFile, name: str, words: MetadataWords, avro: str | None = None) -> Named:
    end = file.source.read(file.source.length - TRAILER_SIZE, TRAILER_SIZE)
    for number, (value,) in trailer_fields(end).items():
        label = TRAILER[number - 1]
        yield f"{name} trailer {label}", value if label.split()[-1] not in ("at", "bytes", "block") else "<a place>"
    yield f"{name} trailer version", (end[-4], end[-1])
    keys, values = ([each for batch in file.scan() for each in batch.column(n).to_pylist()] for n in (0, 1))
    yield from ((f"{name} info {key}", value) for key, value in _info(file.info, keys, values).items())
    yield from _filter(file, keys, name)
    for key, record in zip(keys, decode(values, avro or file.info["schema"].decode(), name), strict=True):
        yield from flat(_record(record, words), f"{name} record {words.key(key.decode())}")
    # Hashes of file names order keys, so the words are put in an order of their own.
    yield f"{name} keys", sorted(words.key(key.decode()) for key in keys)


def _info(info: Mapping[str, bytes], keys: list[bytes], values: list[bytes]) -> dict[str, Any]:
    """The properties of an HFile; what follows from its entries is put in words."""
    found: dict[str, Any] = dict(info)
    found["schema"] = info["schema"].decode()
    for name, key in (("minRecordKey", keys[0]), ("maxRecordKey", keys[-1])):
        if name in info:
            found[name] = "<its end>" if info[name] == key else info[name]
    last = info["hfile.LASTKEY"]
    found["hfile.LASTKEY"] = ("<its end>", last[2 + len(keys[-1]) :]) if last[2:].startswith(keys[-1]) else last
    for name, entries in (("hfile.AVG_KEY_LEN", keys), ("hfile.AVG_VALUE_LEN", values)):
        found[name] = int.from_bytes(info[name], "big") - sum(map(len, entries)) // len(entries)
    return found | {"hfile.CREATE_TIME_TS": "<a moment>"} if "hfile.CREATE_TIME_TS" in info else found


def _filter(file: HFile, keys: list[bytes], name: str) -> Named:
    text = filter_of(file)
    if text is None:
        yield f"{name} filter", None
        return
    found = BloomFilter.from_base64(text, file.info["bloomFilterTypeCode"].decode(), name)
    yield f"{name} filter", (found.kind, found.num_hashes, found.bit_size, len(found.rows))
    yield f"{name} filter head", base64.b64decode(text)[:25]
    yield f"{name} filter lets all keys pass", bool(found.might_contain(pa.array(keys, pa.binary())).all())


def _record(record: Mapping[str, Any], words: MetadataWords) -> dict[str, Any]:
    found = dict(record)
    files, place = found["filesystemMetadata"], found["recordIndexMetadata"]
    if files is not None:
        found["filesystemMetadata"] = {name: {**info, "size": _size(name, info, words)} for name, info in files.items()}
    if place is not None:
        kept = {member: value for member, value in place.items() if member not in PLACE}
        at = words.moments.get(place["instantTime"], place["instantTime"])
        found["recordIndexMetadata"] = {**kept, "of": _uuid(place), "instantTime": at}
    mapped: dict[str, Any] = words(found)
    return mapped


def _uuid(place: Mapping[str, Any]) -> str:
    high, low = (place[member] & (1 << 64) - 1 for member in PLACE)
    return str(uuid.UUID(int=high << 64 | low))


def _size(name: str, info: Mapping[str, Any], words: MetadataWords) -> Any:
    return "<its size>" if words.sizes.get(name) == info["size"] else info["size"]
