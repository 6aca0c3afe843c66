"""Message keys that are the bare text of a record key, as Kafka's serializer of strings writes them."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.compute as pc

from tagstream.streaming.source.decode.columns import mask_of
from tagstream.streaming.source.decode.connect_json import Body
from tagstream.streaming.source.decode.record_decoder import Path
from tagstream.table.chunks import flat

_OBJECT = r"^[ \t\r\n]*\{"
_CONTROL = r"[\x00-\x1f]"


class TextKeys:
    """Decodes a key that is not a JSON object as the text of the one record key field. ``path``: of that field in an object.
    ``body``: decodes objects, where a number may be a text.
    """

    def __init__(self, path: Path, body: Body) -> None:
        self._before = b"".join(b"{" + json.dumps(name).encode() + b":" for name in path) + b'"'
        self._after = b'"' + b"}" * len(path)
        self._body = body

    def decode(self, values: pa.Array) -> tuple[pa.Table, pa.Array]:
        """(rows, reasons), see ``connect_json.Body``."""
        values = flat(values).cast(pa.binary())
        objects = pc.match_substring_regex(values, _OBJECT)
        if pc.all(objects, min_count=0).as_py():
            return self._body.decode(values)
        texts = pc.replace_substring(pc.replace_substring(values, "\\", "\\\\"), '"', '\\"')
        if mask_of(pc.match_substring_regex(texts, _CONTROL)).any():  # few keys have such characters
            texts = pa.array([_escaped(text) for text in texts.to_pylist()], pa.binary())
        made = pc.binary_join_element_wise(self._before, texts, self._after, b"")
        return self._body.decode(pc.if_else(objects, values, made))


def _escaped(text: bytes) -> bytes:
    return b"".join(b"\\u%04x" % byte if byte < ord(" ") else bytes((byte,)) for byte in text)
