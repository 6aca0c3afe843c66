"""How records are read, as a small value that goes to every task; the decoder itself is built there once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.state.layout import OrderingKind, has_bytes
from tagstream.state.ordering import decode_ordering, ordering_kind
from tagstream.state.tag_batch import PartialRows
from tagstream.streaming.options.options import Options
from tagstream.streaming.record_formats import TYPED_ROWS
from tagstream.streaming.source.decode.confluent_avro import check_reader
from tagstream.streaming.source.decode.debezium import DebeziumRules
from tagstream.streaming.source.decode.key_decoder import KeyDecoder
from tagstream.streaming.source.decode.make_format import PLAIN, FormatRules, TableFacts, make_format
from tagstream.streaming.source.decode.record_format import STRICT, DecodeRules, RecordFormat, avro_facts
from tagstream.streaming.source.decode.record_schemas import SchemaWatch
from tagstream.streaming.source.decode.row_messages import SourceTables
from tagstream.streaming.source.decode.schema_registry import RegistryPlace
from tagstream.streaming.source.source_checks import (
    check_kinds,
    check_order,
    key_names_its_field,
    longest_key,
    partition_rules,
)
from tagstream.table.fields import ordering_type
from tagstream.table.file_group.ordering_wrapper import beyond
from tagstream.table.keys.keys import KeyGenerator
from tagstream.table.keys.time_partition import TimePartition
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.table_config import without_fields
from tagstream.table.read.stored_keys import fitting_generator, names_single_key
from tagstream.table.schema.evolve import EvolutionRules
from tagstream.table.schema.schema import avro_to_arrow


def format_rules(options: Options, *, ordered: bool, pinned: str | None = None) -> FormatRules:
    """How the options want records read. ``ordered``: the table has an ordering field. ``pinned``: the table whose events
    the stream reads, where the options name none.

    Without one only the state index can keep what orders the events; with another they count as they arrive.
    """
    told = options.records
    arrival = told.debezium_order == "arrival" or not (ordered or options.state_index)
    order = "arrival" if arrival else told.debezium_order
    avro = told.format.avro
    if avro:
        check_reader()
    return FormatRules(
        name=(TYPED_ROWS if options.frame_schema is not None else told.format).name,
        debezium=DebeziumRules(order=order, truncate=told.truncate, placeholder=told.placeholder),
        bytes_as=told.bytes_as,
        delete_field=told.delete_field,
        null_if_lost=told.null_if_lost,
        tables=SourceTables(told.tables, None if told.tables else pinned),
        registry=RegistryPlace(told.registry_url, told.registry_ca_file) if avro and told.registry_url else None,
    )


@dataclass(frozen=True)
class DecodeSpec:
    """The table's key rules and the record schema (``avro_json``; ``defaults_json`` may have more Avro defaults).

    ``files``: records are lines of files, not Kafka messages. ``merge_on_read``: deletes are written to log files.
    ``refuse_collisions``: composite keys that other values would make, too, are bad. ``evolution``: how schemas of records
    change the table's; None: they do not. ``partial``: a field that a record lacks keeps what the row has. ``longest_key``:
    bytes of a record key that an index outside of the rows can hold. ``sql_times``, ``consistent_times``: the form of
    timestamps in partition paths and keys (``KeyGenerator``). ``dropped``: columns of records that are not stored.
    """

    avro_json: str
    defaults_json: str
    record_key_fields: tuple[str, ...]
    partition_fields: tuple[str, ...]
    key_generator: str
    hive_style: bool
    url_encode: bool
    ordering_fields: tuple[str, ...]
    global_index: bool
    files: bool
    name_single_key: bool
    merge_on_read: bool
    refuse_collisions: bool = False
    rules: DecodeRules = STRICT
    time_fields: tuple[str, ...] = ()
    times: TimePartition | None = None
    format: FormatRules = PLAIN
    evolution: EvolutionRules | None = None
    partial: bool = False
    longest_key: int | None = None
    sql_times: bool = False
    consistent_times: bool = False
    dropped: tuple[str, ...] = ()

    @classmethod
    def for_table(
        cls, table: HoodieTable, avro_json: str, defaults_json: str, options: Options, pinned: str | None = None
    ) -> DecodeSpec:
        """The spec of a table; ConfigError when files come without an ordering field, which nothing else orders.

        ``pinned``: the table at the source whose events the stream reads (``messages.tables``).
        A complex key of one field is ``value`` or ``field:value``, by the version that wrote the table: its rows tell.
        """
        config = table.config
        files = options.source_class == "dfs"
        reads = format_rules(options, ordered=bool(config.deciding_fields), pinned=pinned)
        check_order(options, config, reads)
        named = key_names_its_field(table, options)
        spec = cls.of(
            table, avro_json, defaults_json, global_index=options.global_index, files=files, name_single_key=named
        )
        check_kinds(options, config)
        # What the table does not say, the job may.
        spec = replace(spec, **partition_rules(options, config))
        if options.check_stored_keys:
            spec = spec.fitted(table, moves=options.index.moves or not options.global_index)
        return replace(
            spec,
            refuse_collisions=options.key_collisions == "quarantine",
            rules=DecodeRules(**options.decode_rules),
            format=reads,
            partial=options.schema.partial_update,
            longest_key=longest_key(options, config),
        )

    @classmethod
    def of(
        cls,
        table: HoodieTable,
        avro_json: str,
        defaults_json: str,
        *,
        global_index: bool,
        files: bool,
        name_single_key: bool | None = None,
    ) -> DecodeSpec:
        """The spec by the table's own properties; ``name_single_key``: as the caller has looked it up in the rows."""
        config = table.config
        return cls(
            avro_json=avro_json,
            defaults_json=defaults_json,
            record_key_fields=config.record_key_fields,
            partition_fields=config.partition_fields,
            time_fields=config.time_fields,
            times=config.times,
            key_generator=config.key_generator,
            hive_style=config.hive_style,
            url_encode=config.url_encode,
            ordering_fields=config.deciding_fields,
            global_index=global_index,
            files=files,
            name_single_key=bool(names_single_key(table)) if name_single_key is None else name_single_key,
            merge_on_read=config.is_merge_on_read,
            dropped=config.dropped_fields,
        )

    def fitted(self, table: HoodieTable, *, moves: bool = True) -> DecodeSpec:
        """The same with the form of timestamps that the table's rows have in their partition paths.

        ``moves``: a row whose partition field changes moves to its new partition.

        TableConfigMismatchError where the rows have other keys or paths than this spec makes.
        """
        found = fitting_generator(table, self.key_generator_rules, moves=moves)
        return replace(self, sql_times=found.sql_times, consistent_times=found.consistent_timestamps)

    @property
    def schema(self) -> pa.Schema:
        """The user columns of records."""
        return avro_to_arrow(self.avro_json)

    @property
    def stored_json(self) -> str:
        """The Avro schema of rows as they are stored: without the columns that only partition paths hold."""
        return without_fields(self.avro_json, self.dropped)

    @property
    def stored(self) -> pa.Schema:
        """The user columns as they are stored."""
        return avro_to_arrow(self.stored_json)

    @property
    def ordering_type(self) -> pa.DataType | None:
        """Arrow type of the ordering values, of several fields a struct; None without one."""
        return ordering_type(self.schema, self.ordering_fields)

    @property
    def ordering_kind(self) -> OrderingKind:
        """How ordering values are kept; StateError for a type that can't be one.

        A table without an ordering field can have events that their format orders: then only the state knows their order.
        """
        if not self.ordering_fields:
            return self.format.ordering_kind
        return ordering_kind(self.ordering_type)

    @property
    def null_if_lost(self) -> bool:
        """Whether a value that was not sent, and that no row holds any more, becomes null."""
        return self.format.null_if_lost

    @property
    def partial_rows(self) -> PartialRows | None:
        """What records that lack fields mean for their rows; None where they lack none."""
        if not self.partial:
            return None
        schema = self.schema
        needed = np.array([not field.nullable for field in schema], np.bool_)
        place = schema.get_field_index(self.partition_fields[0].split(".")[0]) if self.partition_fields else -1
        return PartialRows(needed, place)

    def of_table(self, table: str) -> DecodeSpec:
        """The same of a stream that reads one table of those that its records name."""
        return replace(self, format=replace(self.format, tables=replace(self.format.tables, pinned=table)))

    @property
    def reads_headers(self) -> bool:
        """Whether the headers of Kafka messages say something that the format needs."""
        return self.format.kind.positions

    @property
    def key_generator_rules(self) -> KeyGenerator:
        """The rules that make keys of rows."""
        return KeyGenerator.create(
            self.key_generator,
            self.record_key_fields,
            self.partition_fields,
            self.hive_style,
            self.url_encode,
            name_single_key=self.name_single_key,
            time_fields=self.time_fields,
            times=self.times,
            sql_times=self.sql_times,
            consistent_timestamps=self.consistent_times,
        )

    @property
    def depth_is_open(self) -> bool:
        """Whether the values of records decide how many folders deep a partition lies."""
        return self.key_generator_rules.depth(self.schema) is None

    def ordering_values(self, codes: pa.Array, natural: pa.Array) -> pa.Array:
        """Ordering codes as the column's own values, null where ``natural``: what delete blocks carry.

        Null, too, where no delete block can hold the value. The decoder lets no such record in: it is the ordering of the
        table's own row, which a delete without one was given, so the delete is known to be newer than all there is.
        """
        known = pc.invert(natural).to_numpy(zero_copy_only=False)
        if (
            self.ordering_type is None
        ):  # what orders the events is in no column: a delete deletes by its place in the log
            return pa.nulls(len(codes), pa.int64())
        if has_bytes(self.ordering_kind):
            codes_of = np.empty(len(codes), dtype=object)
            codes_of[:] = codes.to_pylist()  # deletes only
        else:
            codes_of = pc.fill_null(codes, 0).to_numpy()
        values = decode_ordering(codes_of, known, self.ordering_type)
        great = beyond(values) if self.merge_on_read else None
        return values if great is None else pc.if_else(pa.array(great), pa.scalar(None, values.type), values)


@lru_cache(maxsize=2)
def cached_decoder(spec: DecodeSpec) -> KeyDecoder:
    """The decoder of a spec; a worker process keeps it from batch to batch."""
    return decoder_of(spec)


def decoder_of(spec: DecodeSpec, record_format: RecordFormat | None = None) -> KeyDecoder:
    """A decoder of a spec, made anew; ``record_format``: another one than the spec's."""
    facts, generator = avro_facts(spec.defaults_json), spec.key_generator_rules
    watch = None if spec.evolution is None else SchemaWatch(spec.schema, spec.evolution)
    table = TableFacts(
        schema=spec.schema,
        avro_json=spec.defaults_json,
        facts=facts,
        generator=generator,
        ordered=bool(spec.ordering_fields),
        global_index=spec.global_index,
        files=spec.files,
        rules=spec.rules,
        watch=watch,
    )
    return KeyDecoder(
        spec.schema,
        generator,
        spec.ordering_fields,
        spec.global_index,
        facts,
        rules=spec.rules,
        merge_on_read=spec.merge_on_read,
        refuse_collisions=spec.refuse_collisions,
        record_format=record_format or make_format(spec.format, table),
        watch=watch,
        partial=spec.partial,
        longest_key=spec.longest_key,
        partition_in_path_alone=bool(spec.dropped),
    )


def source_spec(spec: DecodeSpec, avro_json: str, options: Options) -> DecodeSpec:
    """The spec of records before a transformation: their own schema and format; ``spec``: of the table."""
    told = format_rules(replace(options, frame_schema=None), ordered=bool(spec.ordering_fields))
    return replace(spec, avro_json=avro_json, defaults_json=avro_json, format=told)
