"""docs/reference/configuration.md from the key table.

``python -m tests.support.configuration_page`` writes it, ``--check`` fails when it is stale.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence

from tagstream.streaming.options.keys import kafka as kafka_keys
from tagstream.streaming.options.registry import REGISTRY
from tagstream.table.config import Concern, ConfigKey, Family, Kind, Status
from tests.support.paths import ROOT

PAGE = ROOT / "docs" / "reference" / "configuration.md"
_OTHER_PAGE = re.compile(r"docs/([\w-]+/([\w-]+)\.md)(#[\w-]+|, [A-Z][a-z ]+)?")

_HEAD = """# Configuration

<!-- Written by `python -m tests.support.configuration_page` from streaming/options/registry.py; do not edit. -->

Options come from a properties file (`--props FILE`), from `--hoodie-conf key=value` (repeatable) and from flags.
Flags override `--hoodie-conf`, which overrides the file. Names are Hudi's; those of `index.*` are Flink's.
`hoodie.deltastreamer.*` is read as `hoodie.streamer.*`. The effective options are logged at the start with passwords
masked.

- One message lists all errors. Nothing is created before everything is checked.
- An unknown `index.*` or `tagstream.*` key ends the job. An unknown `hoodie.*` key gives a warning with the nearest
  known key.
- `--hoodie-conf key=` with an empty value removes a key of the file.
- An existing table keeps its settings; another value ends the job. A table without commits of such a job and without
  a schema takes the job's settings, and the log says so.
- Relative paths are made absolute at the start. All spellings of a source folder are the same stream. Table,
  checkpoint and source must not contain one another.
- `--dry-run` makes all checks that a start makes before it starts Spark, with the same messages and exit codes (0
  done, 1 failed, 2 wrong use), and changes nothing. It cannot check whether a topic exists.

A properties file has one `key=value` per line. `#` begins a comment; `include=other.properties` includes another
file. A backslash is an ordinary character, as for HoodieStreamer, except at the end of a line, where it continues the
value on the next line. Only one `--props` is allowed.

## Bring your HoodieStreamer file

The file of a HoodieStreamer job can be used unchanged. The start lists the keys that this job does not use, each with
its file and line, in three groups:

1. **Without effect.** The result is what the key asks for (`hoodie.combine.before.upsert=true`), or the key concerns
   another index or source.
2. **Not done by this job**; the rows are the same without it: registration in catalogues other than
   Hive Metastore and Glue, metrics reporters. Another program has to do it. `tagstream.unsupported` is `warn` (the
   default: list the keys), `ignore` or `fail` (end the job).
3. **Contradictions.** Rows or files would differ from what the key asks for. They always end the start, in one
   message.

To keep a shared file unchanged, remove single keys on the command line; the message says how: `--hoodie-conf
hoodie.datasource.write.payload.class=`. The group of some keys depends on others:

"""
_CHANGES = """
## Defaults in the schema file

[How a changed schema file changes the table](../guide/records.md#when-the-schema-changes). With another default,
records that lack the field get it from then on; older rows keep their values. The table's schema stores the file's
defaults (except those of decimals), so a start without the file applies them too. The default of a nullable column is
stored as `tagstream.default`, next to Avro's `"default": null`, because Hudi 1.2 fails to read a table with another
one. A writer with its own schema (as real Hudi has) removes it: give the file again after that.

"""
_DEPENDS = (
    (
        "`hoodie.datasource.write.payload.class` = `OverwriteWithLatestAvroPayload`",
        "there is no ordering field: the later record wins",
        "contradiction: with one the newer event wins",
    ),
    (
        "the same key = `PostgresDebeziumAvroPayload`, `MySqlDebeziumAvroPayload`",
        "the order is that of the class: `_event_lsn` is the ordering field; or there is no ordering field, the index is "
        "STATE, and Debezium's events are ordered by `lsn` or `binlog`",
        "contradiction",
    ),
    (
        "`hoodie.streamer.schemaprovider.target.schema.file`",
        "it is the source schema's file, or has the same content",
        "contradiction: records are written with the source schema",
    ),
    (
        "`hoodie.streamer.schemaprovider.registry.*` that are not listed",
        "the source schema's file is given",
        "contradiction: only the registry's URL and login are read",
    ),
    (
        "`hoodie.streamer.source.kafka.value.deserializer.class`",
        "both it and the format are Avro, or it is not for Avro, Protobuf or JSON schema",
        "contradiction: values are decoded as JSON",
    ),
    (
        "`hoodie.bucket.index.*`, `hoodie.index.bucket.*` that are not listed",
        "the index is not BUCKET",
        "contradiction",
    ),
)
_KAFKA = """## Kafka consumer keys

Every key that does not begin with `hoodie.`, `index.`, `tagstream.` or `spark.` is a Kafka consumer key. Spark's connector
gets it with the prefix `kafka.`, which you may also write: `security.protocol`, `sasl.mechanism`,
`sasl.jaas.config`, `ssl.truststore.location` and so on. A key that Kafka does not have gives a warning and
is passed to the connector.

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
    out.append("A value in the last column has no effect and gives no message.\n\n")
    out += _unsupported(Concern.BESIDE)
    out.append("\n## Contradictions\n\nA value in the last column is accepted.\n\n")
    out += _unsupported(Concern.CONTRADICTS)
    return _OTHER_PAGE.sub(_link, "".join(out))


def _link(found: re.Match[str]) -> str:
    """A page that a text names, as a link: ``docs/guide/records.md, Files`` is the section Files of it."""
    place, name, part = found.groups(default="")
    anchor = "#" + part[2:].lower().replace(" ", "-") if part.startswith(", ") else part
    words = part.lstrip("#, ").replace("-", " ")
    return f"[{words[:1].upper()}{words[1:]}](../{place}{anchor})" if words else f"[{name}](../{place})"


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
        print(f"{PAGE} is stale; run python -m tests.support.configuration_page", file=sys.stderr)
        return 1
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
