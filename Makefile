# Every target installs what it needs on a new machine with Python 3.11 to 3.13 and Java 17; Maven only for Kafka.
SHELL := /bin/sh
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.tagstream-installed
# Start of make in whole seconds (macOS' date has no fractions), so that the demo can print how long the set-up took.
STARTED := $(shell date +%s)

# Kinds of tables in `make versions`: version, and whether with a metadata table. `make test` uses version 6 without one.
KINDS ?= 9-true 9-false 8-true 8-false 6-true

# Environments of `make platforms`. Default: all.
CELLS ?=

# The environment in `make test-all`, unless ARGS names tests: the first tier, some minutes.
OLDER_SPARK = $(if $(ARGS),,@$(PY) -m tests.support.platforms spark-3.5 --tier first --one-variant)

# The second since 1970 after which `make test-rest` starts no test. It lists the tests that were not run. Default: it runs all.
UNTIL ?=
IN_TIME = $(if $(UNTIL),--until $(UNTIL) --begin-at $(shell git rev-parse HEAD))

# Histories of `make simulate`: their number, and the seed of the first one.
SEEDS ?= 1000
FIRST ?= 1

# Pairs of options in `make pairs`: seeds of the arrays, and number of cases with edited settings.
SEED ?= 1
EDITS ?= 0

# Tests and drills run in two processes in parallel, each with its own Spark.
WORKERS ?= 2
SIDE_BY_SIDE = -n $(WORKERS) --dist worksteal

MONTHS ?= 1
TABLE_TYPE ?= COPY_ON_WRITE
STORAGE ?= local
FLIGHTS := -m bench.flights.run --months $(MONTHS) --table-type $(TABLE_TYPE) --storage $(STORAGE) --started $(STARTED)

.PHONY: help install run run-kafka test test-all test-rest defects versions simulate pairs check docs packages dist environment platforms bench drills drills-matrix interop clean

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12
	@echo 'variables: MONTHS=1..12, TABLE_TYPE=COPY_ON_WRITE|MERGE_ON_READ, STORAGE=local|s3|hdfs (run, run-kafka), PYTHON=python3.11, ARGS=... (test, test-all, versions, bench, drills, drills-matrix, interop), WORKERS=2 (test, test-all, versions, simulate, drills, drills-matrix), SEEDS=1000, FIRST=1 (simulate), UNTIL=<second since 1970> (test-rest), SEED='1 2 3', EDITS=30 (pairs), CELLS="spark-3.5 least" (platforms), KINDS="9-true 8-false" (versions)'

install: $(STAMP)  ## make .venv/ with the console script tagstream

$(STAMP): pyproject.toml conf/constraints.txt
	@test -n '$(PYTHON)' || { echo 'Tagstream needs Python 3.11 to 3.13, and there is no python3 on the PATH: install one, or name it with make PYTHON=/path/to/python3.11' >&2; exit 1; }
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(not (3, 11) <= v <= (3, 13) and "Tagstream needs Python 3.11 to 3.13, $(PYTHON) is %d.%d: install one, or name it with make PYTHON=/path/to/python3.11" % v)'
	@java -version 2>&1 | grep -Eq 'version "(1[7-9]|2[0-9])' || { echo 'Tagstream needs Java 17 or newer on the PATH: install openjdk-17-jre-headless' >&2; exit 1; }
	@echo 'installing into $(VENV)/ (a few minutes the first time)'
	@test -x $(PY) || $(PYTHON) -m venv $(VENV)
	@$(PY) -m pip install --quiet --disable-pip-version-check --constraint conf/constraints.txt --editable '.[spark,avro,protobuf,hbase,hive,glue,zookeeper,dynamodb,demo,dev,docs,bench,s3,hdfs]'
	@touch $(STAMP)

run: install  ## stream real flights from files into out/flights and check the table
	@$(PY) $(FLIGHTS)

run-kafka: install  ## the same through a real Kafka broker on loopback
	@$(PY) $(FLIGHTS) --kafka

test: install  ## the first tier of tests: units, behaviour suites on local files, a stream for each story; at most 12 minutes
	@$(PY) -m tests.support.tools
	$(PY) -m pytest $(SIDE_BY_SIDE) --tier first --without-missing-tools --durations 10 $(ARGS)

test-rest: install  ## Spark 3.5; and the second tier: more kinds of tables, servers, longer histories, other programs
	@$(PY) -m tests.support.tools
	$(OLDER_SPARK)
	$(PY) -m pytest $(SIDE_BY_SIDE) --tier second --without-missing-tools $(IN_TIME) --durations 10 $(ARGS)

test-all: install  ## both tiers: every test but drills and interop; and Spark 3.5
	@$(PY) -m tests.support.tools
	$(PY) -m pytest $(SIDE_BY_SIDE) --without-missing-tools --durations 10 $(ARGS)
	$(OLDER_SPARK)

defects: install  ## put defects into the code, one at a time, and check which tier of the tests finds each: an hour
	$(PY) -m tests.support.defects $(ARGS)

simulate: install  ## random histories of a stream and its table in one process: SEEDS=1000, FIRST=1
	$(PY) -m tests.simulation.run --first $(FIRST) --seeds $(SEEDS) --workers $(WORKERS) $(ARGS)

pairs: install  ## every pair of options makes a new table and streams three batches: SEED='1 2 3'; EDITS=30: settings edited between them
	@$(PY) -m tests.pairs.run --seed $(SEED) --edits $(EDITS) $(ARGS)

versions: install  ## the tests that make tables, once on every other kind of table: KINDS=9-true is version 9 with a metadata table
	@files=$$($(PY) -m tests.support.versioned) || exit 1; \
	bad=; for kind in $(KINDS); do echo "tables of kind $$kind"; \
	    TAGSTREAM_TEST_TABLE_VERSION=$${kind%%-*} TAGSTREAM_TEST_METADATA=$${kind#*-} \
	    $(PY) -m pytest $(SIDE_BY_SIDE) $(or $(ARGS),$$files) || bad="$$bad $$kind"; done; \
	test -z "$$bad" || { echo "make versions: failed on tables of kind$$bad" >&2; exit 1; }

check: install  ## formatting, lint, types and words; that all tests can be collected
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	@$(PY) -m tests.support.words
	@$(PY) -m pytest --collect-only -qq --no-summary --tier first >/dev/null || $(PY) -m pytest --collect-only -qq --tier first

docs: install  ## site/: the documentation as a web site; fails on a broken link
	@NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --quiet --strict --clean
	@echo 'open site/index.html'

packages: install  ## the packages of the sources and their imports; fails on a circular import
	@$(PY) -m tests.support.packages

dist: install  ## dist/: the wheel, the same as a zip for spark-submit --py-files, the sources, run_stream.py
	@$(PY) -m tests.support.dist --out dist

environment: install  ## dist/environment.tar.gz: the packages that the project needs, for spark-submit --archives
	@$(PY) -m tests.support.environment --out dist

platforms: install  ## the tests that every release of Spark must pass, each in a separate environment: CELLS="spark-3.5 least" (needs Maven for some)
	@$(PY) -m tests.support.platforms $(CELLS)

bench: install  ## this writer compared with Hudi on Spark and Flink, Paimon, delta-rs: an hour or more, ARGS=--quick 2 minutes (sets up .peers/)
	@$(PY) -m bench.compare --limits $(ARGS)

drills: install  ## the long failure drills of a stream: an hour or more
	$(PY) -m pytest $(SIDE_BY_SIDE) -m 'drill and not matrix' tests/drills tests --drill-report out/drills.json $(or $(ARGS),--least-faults 200)

drills-matrix: install  ## the drills of table services, upgrades, pairs of kills on version 9, and each call of a failing storage; more kinds of tables
	$(PY) -m pytest $(SIDE_BY_SIDE) -m matrix tests/drills tests --drill-report out/drills-matrix.json $(ARGS)

interop: install  ## real Hudi reads and continues our tables, and the benchmark runs it (sets up .peers/, needs Maven once)
	@$(PY) -m bench.peers.home
	$(PY) -m pytest -m 'hudi_jar or s3 or stores or hdfs or deployment' tests/interop tests/bench tests/behaviours tests/table/storage tests/streaming tests/test_deployment.py tests/test_operations.py $(ARGS)

clean:  ## remove the files of all targets, including virtual environments and jars
	rm -rf $(VENV) .jars .peers .platforms out build dist site *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis spark-warehouse
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
