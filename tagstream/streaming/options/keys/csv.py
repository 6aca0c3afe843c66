"""Options of Spark's CSV reader that HoodieStreamer passes on (Hudi's ``CsvDFSSource``), and that have one meaning here."""

from __future__ import annotations

from tagstream.streaming.options.keys.unsupported import ignored, unsupported

_SCHEMA_TYPES = "columns have the types of the schema"

CSV_KEYS = (
    unsupported(
        "hoodie.streamer.csv.mode",
        "a record that cannot be read is in the quarantine, and --max-bad-records limits their number; it is never "
        "dropped; remove it",
        "permissive",
        "failfast",
    ),
    unsupported(
        "hoodie.streamer.csv.charToEscapeQuoteEscaping",
        "an escape character before an escape character is a part of the text; remove it",
        "\\",
    ),
    *(
        unsupported(f"hoodie.streamer.csv.{name}", "numbers have Spark's texts NaN, Inf and -Inf; remove it", value)
        for name, value in (("nanValue", "nan"), ("positiveInf", "inf"), ("negativeInf", "-inf"))
    ),
    *(
        unsupported(f"hoodie.streamer.csv.{name}", "dates and timestamps are read in ISO 8601; remove it", *values)
        for name, values in (
            ("dateFormat", ("yyyy-MM-dd",)),
            ("timestampFormat", ("yyyy-MM-dd HH:mm:ss", "yyyy-MM-dd'T'HH:mm:ss", "yyyy-MM-dd'T'HH:mm:ss[.SSS][XXX]")),
        )
    ),
    *(
        ignored(f"hoodie.streamer.csv.{name}", reason)
        for name, reason in (
            ("multiLine", "a line break in quotes always belongs to its field"),
            ("enforceSchema", "columns of a header are found by name, others by their place in the schema"),
            ("inferSchema", _SCHEMA_TYPES),
            ("samplingRatio", _SCHEMA_TYPES),
            ("maxColumns", "the schema has the number of columns"),
            ("maxCharsPerColumn", "a record may have 16 MiB"),
            ("columnNameOfCorruptRecord", "bad records are in the quarantine"),
        )
    ),
)
