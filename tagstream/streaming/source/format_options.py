"""The format of records as the options name it."""

from __future__ import annotations

from tagstream.streaming.options.options import Options
from tagstream.streaming.source.decode.formats.datums import check_reader
from tagstream.streaming.source.decode.formats.debezium import DebeziumRules
from tagstream.streaming.source.decode.formats.make import FormatRules
from tagstream.streaming.source.decode.formats.registry import RegistryPlace
from tagstream.streaming.source.decode.messages.tables import SourceTables


def format_rules(options: Options, *, ordered: bool, pinned: str | None = None) -> FormatRules:
    """How the options want records read. ``ordered``: the table has an ordering field. ``pinned``: the table whose events
    the stream reads, where the options name none.

    Without one only the state index can keep what orders the events; with another they count as they arrive.
    """
    told = options.records
    arrival = told.debezium_order == "arrival" or not (ordered or options.state_index)
    order = "arrival" if arrival else told.debezium_order
    avro = told.format.endswith("avro")
    if avro:
        check_reader()
    return FormatRules(
        name="rows" if options.frame_schema is not None else told.format,
        debezium=DebeziumRules(order=order, truncate=told.truncate, placeholder=told.placeholder),
        bytes_as=told.bytes_as,
        delete_field=told.delete_field,
        null_if_lost=told.null_if_lost,
        tables=SourceTables(told.tables, None if told.tables else pinned),
        registry=RegistryPlace(told.registry_url, told.registry_ca_file) if avro and told.registry_url else None,
    )
