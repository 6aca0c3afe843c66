"""docs/configuration.md from the key table.

``python -m tagstream.streaming.options.keys.docs`` writes it, ``--check`` fails when it is stale.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from tagstream.streaming.options.keys import kafka as kafka_keys
from tagstream.streaming.options.keys.registry import REGISTRY
from tagstream.table.config import Concern, ConfigKey, Family, Kind, Status
from tagstream.version import PACKAGE

PAGE = PACKAGE.parent / "docs" / "configuration.md"

_HEAD = """# Configuration

<!-- Written by `python -m tagstream.streaming.options.keys.docs` from streaming/options/keys/; do not edit. -->

Options come from a properties file (`--props FILE`), from `--hoodie-conf key=value` (repeatable) and from flags; a flag
wins over `--hoodie-conf`, that over the file. Names are Hudi's, those of `index.*` Flink's; `hoodie.deltastreamer.*` is
read as `hoodie.streamer.*`. The effective options are logged at the start with passwords masked.

- What is wrong is said in one message, all of it: nothing is made before everything is looked at.
- An unknown `index.*` or `tagstream.*` key ends the job; an unknown `hoodie.*` key warns and names the nearest known one.
- `--hoodie-conf key=` with nothing behind it takes a key out that the file has, as if it were not there.
- Settings of an existing table are taken from the table; giving another value ends the job. A table without commits that
  such a job has made, and nobody described by a schema, takes the job's settings instead, and says so.
- Paths are made absolute at the start. A source folder is the same stream however it is spelled. Table, checkpoint and
  source must not lie in one another.
- `--dry-run` looks at all that a start looks at before it starts Spark, with the same refusals, warnings and exit codes
  (0 done, 1 failed, 2 wrong use), and changes nothing. Whether a topic exists only Spark's client can tell.

A properties file has one `key=value` a line, `#` begins a comment, `include=other.properties` takes another file in. A
backslash is an ordinary character, as it is for HoodieStreamer; only at the end of a line it continues the value on the
next one. One `--props` is given.

## Bring your HoodieStreamer file

A file of a HoodieStreamer job can be given as it is. Keys that this job does not act on are listed at the start, each with
its file and line, in three groups:

1. **Without effect.** What comes out is what the key asks for (`hoodie.combine.before.upsert=true`), or nothing
   here looks at it (settings of another index or source).
2. **Not done by this job**, and the rows are the same without it: table services, registering in a catalogue, metrics
   reporters. Something beside the job has to do it. `tagstream.unsupported` says what becomes of these keys: `warn` (the
   default) lists them, `ignore` passes over them, `fail` ends the job.
3. **Contradictions.** Rows or files would differ from what the key asks for. They end the start, in one message, whatever
   `tagstream.unsupported` says: data that silently differs is worse than a job that does not start.

Why `warn`: HoodieStreamer's users keep settings of services in the same file and would have to cut it in two before a first
try, while no row depends on them. A table whose services nobody runs only grows ([services.md](services.md) says how to run
them); the warning is at every start.

To leave a file as it is that others use, take single keys out on the command line; the message says how:
`--hoodie-conf hoodie.datasource.write.payload.class=`. Some keys' group depends on others:

"""
_CHANGES = """
## Changes of the schema

The schema file is held against the table's schema at each start, before anything is written.

| change in the schema file | what happens |
|---|---|
| a new column that may be null (`["null", T]`, default null) | it comes behind the table's columns; older rows are null |
| a new column that may not be null, with a default or without | refused: older rows have no value |
| a column left out that may be null | it stays, and is null in the rows of this job; the start warns |
| a column left out that may not be null | refused |
| a wider type (int to long, float to double) | the column is widened ([rules](change-streams.md#when-the-schema-changes)) |
| another type, narrower or of another kind | refused; keep the type, or write to a column of another name |
| another default | records that lack the field get it from then on; older rows keep what they have |

The table's schema keeps the file's defaults (those of decimals excepted), so that a start without the file gives records
that lack a field the same. The default of a column that may be null stands there as `tagstream.default`, beside Avro's own
`"default": null`: with another one there Hudi 1.2 fails each read. A writer that brings a schema of its own (real Hudi does)
loses it: give the file again after it.

"""
_DEPENDS = (
    (
        "`hoodie.datasource.write.payload.class` = `OverwriteWithLatestAvroPayload`",
        "there is no ordering field: the later record wins",
        "contradiction: with one the newer event wins",
    ),
    (
        "`hoodie.streamer.schemaprovider.target.schema.file`",
        "it is the source schema's file, or says the same",
        "contradiction: nothing transforms records",
    ),
    (
        "`hoodie.streamer.schemaprovider.registry.*`",
        "the source schema's file is given",
        "contradiction: no registry is asked",
    ),
    (
        "`hoodie.streamer.source.kafka.value.deserializer.class`",
        "it is none of Avro, Protobuf or JSON schema",
        "contradiction: values are JSON",
    ),
    (
        "`hoodie.bucket.index.*`, `hoodie.index.bucket.*` that are not listed",
        "the index is not BUCKET",
        "contradiction",
    ),
)
_KAFKA = """## Kafka consumer keys

Every key that does not begin with `hoodie.`, `index.`, `tagstream.` or `spark.` is a Kafka consumer key and goes to Spark's
connector with the prefix `kafka.` (it may be written with the prefix, too): `security.protocol`, `sasl.mechanism`,
`sasl.jaas.config`, `ssl.truststore.location` and so on. One that Kafka does not have warns and is passed on.

| key | what happens |
|---|---|
"""


def page() -> str:
    """The whole page."""
    out = [_HEAD, "| key | without effect when | else |\n|---|---|---|\n"]
    out += [f"| {key} | {when} | {otherwise} |\n" for key, when, otherwise in _DEPENDS]
    out.append(_CHANGES)
    sections = dict.fromkeys(k.section for k in REGISTRY.keys if k.status is Status.SUPPORTED)
    for section in sections:
        keys = [k for k in REGISTRY.keys if k.section == section and k.status is Status.SUPPORTED]
        out.append(f"## {section}\n\n| key | type | default | meaning |\n|---|---|---|---|\n")
        out += [_row(key) for key in keys]
        out.append("\n")
    out.append(_KAFKA)
    out += [f"| `{name}` | no effect: {reason} |\n" for name, reason in kafka_keys.IGNORED.items()]
    out += [f"| `{name}` | refused: {reason} |\n" for name, reason in kafka_keys.REFUSED.items()]
    out.append("\n## Known, without effect\n\n| key | why |\n|---|---|\n")
    out += [f"| {_names(k)} | {k.reason} |\n" for k in _with(Status.IGNORED)]
    out += [f"| `{f.prefix}*` | {f.reason} |\n" for f in _families(Concern.ANYWAY)]
    out.append("\n## Not done by this job, the rows are the same\n\n")
    out.append("A value in the last column passes without a word: it asks for nothing.\n\n")
    out += _unsupported(Concern.BESIDE)
    out.append("\n## Contradictions\n\nA value in the last column passes.\n\n")
    out += _unsupported(Concern.CONTRADICTS)
    return "".join(out)


def _unsupported(concern: Concern) -> list[str]:
    """The table of a group."""
    out = ["| key | why, and what to do | accepted |\n|---|---|---|\n"]
    keys = [k for k in _with(Status.UNSUPPORTED) if k.concern is concern]
    out += [f"| {_names(k)} | {k.reason} | {_code(k.harmless)} |\n" for k in keys]
    return [*out, *(f"| `{f.prefix}*` | {f.reason} | {_code(f.harmless)} |\n" for f in _families(concern))]


def _families(concern: Concern) -> list[Family]:
    return sorted((f for f in REGISTRY.families if f.concern is concern), key=lambda f: f.prefix)


def _with(status: Status) -> list[ConfigKey]:
    return [key for key in REGISTRY.keys if key.status is status]


def _row(key: ConfigKey) -> str:
    kind = key.kind.value
    if key.kind is Kind.CHOICE:
        kind = _code(key.choices)
    default = key.default_note or (f"`{_plain(key.default)}`" if key.default not in (None, ()) else "none")
    meaning = key.doc
    refused = sorted(v for v in key.refused_values if "." not in v)
    if refused:
        meaning += f" Not supported: {', '.join(refused)}."
    return f"| {_names(key)} | {kind} | {default} | {meaning} |\n".replace("|false", "\\|false")


def _names(key: ConfigKey) -> str:
    names = list(key.flags)
    if not key.flag_only:
        names.append(key.name)
    text = ", ".join(f"`{name}`" for name in names)
    return text + (f" (also {_code(key.aliases)})" if key.aliases else "")


def _plain(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _code(values: Iterable[str]) -> str:
    return ", ".join(f"`{value}`" for value in values)


def main(argv: Sequence[str]) -> int:
    """Write the page, or with ``--check`` say whether it is what the key table gives."""
    if "--check" in argv:
        if PAGE.exists() and PAGE.read_text(encoding="utf-8") == page():
            return 0
        print(f"{PAGE} is stale; run python -m tagstream.streaming.options.keys.docs", file=sys.stderr)
        return 1
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
