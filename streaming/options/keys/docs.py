"""docs/configuration.md from the key table.

``python -m tagstream.streaming.options.keys.docs`` writes it, ``--check`` fails when it is stale.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import tagstream
from tagstream.streaming.options.keys import kafka as kafka_keys
from tagstream.streaming.options.keys.registry import REGISTRY
from tagstream.table.config import ConfigKey, Kind, Status

PAGE = Path(tagstream.__file__).parent.parent / "docs" / "configuration.md"

_HEAD = """# Configuration

<!-- Written by `python -m tagstream.streaming.options.keys.docs` from streaming/options/keys/; do not edit. -->

Options come from a properties file (`--props FILE`), from `--hoodie-conf key=value` (repeatable) and from flags; a flag
wins over `--hoodie-conf`, that over the file. Names are Hudi's, those of `index.*` Flink's; `hoodie.deltastreamer.*` is
read as `hoodie.streamer.*`. The effective options are logged at the start with passwords masked.

- An unknown `index.*` or `tagstream.*` key ends the job; an unknown `hoodie.*` key warns and names the nearest known one.
- A key that is known and not supported ends the job with the reason.
- Settings of an existing table are taken from the table; giving another value ends the job.

A properties file has one `key=value` a line, `#` begins a comment, `include=other.properties` takes another file in. A
backslash is an ordinary character, as it is for HoodieStreamer; only at the end of a line it continues the value on the
next one.

"""
_KAFKA = """## Kafka consumer keys

Every key that does not begin with `hoodie.`, `index.`, `tagstream.` or `spark.` is a Kafka consumer key and goes to Spark's
connector with the prefix `kafka.` (it may be written with the prefix, too): `security.protocol`, `sasl.mechanism`,
`sasl.jaas.config`, `ssl.truststore.location` and so on. One that Kafka does not have warns and is passed on.

| key | what happens |
|---|---|
"""


def page() -> str:
    """The whole page."""
    out = [_HEAD]
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
    out.append("\n## Known, not supported\n\nA value in the last column is accepted: it asks for nothing.\n\n")
    out.append("| key | why | accepted |\n|---|---|---|\n")
    out += [f"| {_names(k)} | {k.reason} | {_code(k.harmless)} |\n" for k in _with(Status.UNSUPPORTED)]
    out += [f"| `{f.prefix}*` | {f.reason} | {_code(f.harmless)} |\n" for f in sorted(REGISTRY.families, key=str)]
    return "".join(out)


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
    names = [key.flag] if key.flag else []
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
