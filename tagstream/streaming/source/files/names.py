"""Which files of the source folder are read, and what their names and first bytes say about their form.

Passed over, as Hadoop's and Spark's sources do: names that begin with ``_`` (unless they hold a ``=``) or ``.``, and
those that end in ``._COPYING_``; of folders, too, with all that is below.
"""

from __future__ import annotations

from tagstream.streaming.errors import SourceError

# Ending -> how it is decompressed; None: not at all here.
CODECS: dict[str, str | None] = {
    ".gz": "gzip",
    ".bz2": "bz2",
    ".zst": "zstd",
    ".deflate": "zlib",
    ".snappy": None,
    ".lz4": None,
    ".lzo": None,
    ".xz": None,
    ".br": None,
    ".zip": None,
    ".Z": None,
}
# First bytes -> (what such a file is, the codec of it).
MAGIC: tuple[tuple[bytes, str, str], ...] = (
    (b"\x1f\x8b", "gzip", "gzip"),
    (b"BZh", "bzip2", "bz2"),
    (b"\x28\xb5\x2f\xfd", "Zstandard", "zstd"),
    (b"\xfd7zXZ\x00", "xz", ""),
    (b"PK\x03\x04", "a ZIP archive", ""),
    (b"PAR1", "Parquet", ""),
    (b"Obj\x01", "an Avro data file", ""),
    (b"ORC", "ORC", ""),
)
MAGIC_BYTES = max(len(magic) for magic, _, _ in MAGIC)


def is_read(name: str) -> bool:
    """Whether a file or a folder of this name is part of the source."""
    hidden = name.startswith(".") or (name.startswith("_") and "=" not in name)
    return not hidden and not name.endswith("._COPYING_")


def codec_of(path: str) -> str | None:
    """How the file is decompressed by its name: None for plain text. SourceError for a form that is not read."""
    for ending, codec in CODECS.items():
        if path.endswith(ending):
            if codec is None:
                raise SourceError(
                    f"source file {path}: files that end in {ending} are not read; decompress it (or write .gz, .bz2 or "
                    ".zst), or take it out of the source folder"
                )
            return codec
    return None


def check_form(path: str, codec: str | None, first: bytes) -> None:
    """SourceError when the first bytes of a file are of another form than its name says."""
    for magic, what, is_codec in MAGIC:
        if first.startswith(magic):
            if is_codec == codec and codec is not None:
                return
            ending = next((end for end, name in CODECS.items() if name and name == is_codec), None)
            cure = f"give it a name that ends in {ending}" if ending else "write it as JSON lines"
            raise SourceError(
                f"source file {path} is {what} by its first bytes, which its name does not say: {cure}, or take it out of "
                "the source folder"
            )
    if codec in ("gzip", "bz2", "zstd") and first:
        raise SourceError(
            f"source file {path} is not {codec} by its first bytes, though its name says so: give it the name of what it is"
        )
