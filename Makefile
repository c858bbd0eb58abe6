# Every target sets up its prerequisites: scripts/setup installs missing Debian packages when run as root, and
# otherwise lists them.

CARGO ?= cargo
PROFILE ?= dev
TARGET := $(abspath $(or $(CARGO_TARGET_DIR),target))
BIN_dev := $(TARGET)/debug/noroshi
BIN_quick := $(TARGET)/quick/noroshi
BIN_release := $(TARGET)/release/noroshi
# `make run` builds without link-time optimization and without what few first users need.
FEATURES_quick := --features noroshi/profiling
# Only release builds contain these: about ninety crates of the AWS SDK, twenty for Kafka and fifteen of OpenTelemetry.
FEATURES_release := --features noroshi/sqs,noroshi/firehose,noroshi/kafka,noroshi/otel,noroshi/profiling
# All features, for `make check`.
FEATURES_all := --features noroshi/sqs,noroshi/firehose,noroshi/kafka,noroshi/otel,noroshi/heap-profiling
# For tests: one build serves unit tests, end-to-end tests and fault injection. Heap profiles need another allocator.
FEATURES_dev := --features noroshi/sqs,noroshi/firehose,noroshi/kafka,noroshi/otel,noroshi/profiling
NOROSHI_BIN ?= $(BIN_$(PROFILE))
# Slopes of a debug build say little.
SOAK_PROFILE ?= quick
# Only debug builds contain fault injection (crates/supervision).
# grep exits with 1 if the text is absent, and with 2 if it cannot read the binary.
NO_FAULTS_quick = grep -q NOROSHI_FAULT_FILE $(BIN_quick); test $$? -eq 1
NO_FAULTS_release = grep -q NOROSHI_FAULT_FILE $(BIN_release); test $$? -eq 1

# A missing or changed snapshot fails the test instead of updating silently.
export INSTA_UPDATE ?= no

.PHONY: help run dist test unit console pictures sdks sdks-chaos e2e faults long soak check advisories bench bench-compare fuzz

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' Makefile

run: ## Build target/quick/noroshi and start a development node in ./noroshi-data
	@scripts/setup build
	$(CARGO) build --profile quick --locked --bin noroshi $(FEATURES_quick)
	@$(NO_FAULTS_quick)
	$(BIN_quick) serve --dev

dist: ## Build target/release/noroshi as packages contain it: link-time optimization, every optional feature; noroshi.debug beside it
	@scripts/setup build
	$(CARGO) build --release --locked --bin noroshi $(FEATURES_release)
	@$(NO_FAULTS_release)
	scripts/split-debug $(BIN_release)

test: unit console e2e ## Run unit, component and end-to-end tests, with third-party clients

unit: ## Run the tests of the workspace
	@scripts/setup build engines
	CARGO=$(CARGO) scripts/unit-tests $(FEATURES_dev) --locked
	$(CARGO) test -p noroshi-profiling --features heap --locked

console: ## Check the page of the web console: types, unit tests, size, and that console/dist is its build
	@scripts/setup node
	scripts/console

pictures: ## Create docs/pictures/console-*.png again: screenshots of the pages of a node with traffic (3 minutes)
	@scripts/setup build node browser pictures
	$(CARGO) build --profile $(PROFILE) --locked --bin noroshi $(FEATURES_$(PROFILE))
	NOROSHI_BIN=$(NOROSHI_BIN) scripts/pictures

sdks: ## Check the client and server libraries: types, vectors, packaging, a real node, Chromium
	@scripts/setup build node browser python go jvm
	$(CARGO) build --profile $(PROFILE) --locked --bin noroshi $(FEATURES_$(PROFILE))
	NOROSHI_BIN=$(NOROSHI_BIN) scripts/sdks

sdks-chaos: ## Run the client library of each language for MINUTES (default 10) under kill -9, drain, lost networks, revoked tokens
	@scripts/setup build node browser python go jvm
	$(CARGO) build --profile $(PROFILE) --locked --bin noroshi $(FEATURES_$(PROFILE))
	NOROSHI_BIN=$(NOROSHI_BIN) scripts/sdks chaos $(or $(MINUTES),10)

e2e: ## Run the end-to-end tests of the built binary (PROFILE=release for the release binary)
	@scripts/setup build engines
	$(CARGO) build --profile $(PROFILE) --locked --bin noroshi $(FEATURES_$(PROFILE))
	$(NO_FAULTS_$(PROFILE))
	NOROSHI_BIN=$(NOROSHI_BIN) e2e/run

faults: ## Kill, pause and partition databases and nodes under load; test Amazon SQS and Apache Kafka (about 9 minutes)
	@scripts/setup build engines
	$(CARGO) build --locked --bin noroshi $(FEATURES_dev)
	NOROSHI_BIN=$(BIN_dev) NOROSHI_FEATURES="$(FEATURES_dev)" e2e/run faults sqs kafka

long: ## Run suites too slow for every change: more kill -9 rounds, Autobahn's large and compressed messages, large third-party programs (PROFILE=release)
	@scripts/setup build engines
	$(CARGO) build --profile $(PROFILE) --locked --bin noroshi $(FEATURES_$(PROFILE))
	NOROSHI_BIN=$(NOROSHI_BIN) e2e/run kill9-long autobahn-long compatibility soak-short
	$(CARGO) test -p noroshi --locked profile # messages of a build without optional features

soak: ## Run everything for MINUTES (default 20) under faults; fit slopes to memory, descriptors, store and latency
	@scripts/setup build engines
	$(CARGO) build --profile $(SOAK_PROFILE) --locked --bin noroshi $(FEATURES_$(SOAK_PROFILE))
	NOROSHI_BIN=$(BIN_$(SOAK_PROFILE)) SOAK_MINUTES=$(or $(MINUTES),20) e2e/run soak

check: ## Check format, lints, documentation, dependencies
	@scripts/setup build deny
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets $(FEATURES_all) --locked -- -D warnings
	# The code that replaces a disabled feature.
	$(CARGO) clippy -p noroshi -p noroshi-events -p noroshi-otel -p noroshi-profiling -p noroshi-sqs --all-targets --locked -- -D warnings
	$(CARGO) clippy -p noroshi-gateway --locked -- -D warnings # without io_uring
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --workspace --no-deps --document-private-items $(FEATURES_all) --locked
	$(CARGO) deny --locked --log-level error check licenses bans sources

advisories: ## Check dependencies for known vulnerabilities (fetches the RustSec database from GitHub)
	@scripts/setup build deny
	$(CARGO) deny --locked check advisories

bench: dist ## Run the measurements of docs/performance.md on this machine
	scripts/bench $(BIN_release)

bench-compare: ## Compare the working tree with the revision BASE: builds both, runs them alternately, prints ratios
	@scripts/setup build
	scripts/bench-compare $(or $(BASE),$(error BASE=<revision> is missing)) $(BENCH_COMPARE)

fuzz: ## Run every fuzz target for SECONDS_EACH (default 30)
	@scripts/setup build fuzz
	scripts/fuzz $(or $(SECONDS_EACH),30)
