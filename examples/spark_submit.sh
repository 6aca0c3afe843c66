#!/bin/sh
# The job without your own code: events in files, a properties file, spark-submit. Argument: a folder for its output.
# On a cluster set another --master, and PYSPARK_PYTHON to a Python with this package on every host (docs/operations/operations.md).
set -eu
cd "$(dirname "$0")/.."
out=${1:-out}
mkdir -p "$out/orders-in"
cat > "$out/orders-in/1.json" <<'END'
{"id": "o-1", "day": "2026-01-05", "ts": 1, "state": "new"}
{"id": "o-2", "day": "2026-01-05", "ts": 2, "state": "new"}
{"id": "o-1", "day": "2026-01-06", "ts": 9, "state": "sent"}
{"id": "o-2", "ts": 7, "_hoodie_is_deleted": true}
END
PYSPARK_PYTHON=$PWD/.venv/bin/python .venv/bin/spark-submit --master 'local[2,4]' \
    --driver-java-options "-Dlog4j2.configurationFile=$PWD/tagstream/conf/log4j2.properties" run_stream.py --props conf/orders.properties \
    --source-class JsonDFSSource --hoodie-conf "hoodie.streamer.source.dfs.root=$out/orders-in" \
    --target-base-path "$out/orders" --target-table orders --checkpoint-dir "$out/orders-checkpoint"
.venv/bin/tagstream table rows --target-base-path "$out/orders"
