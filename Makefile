# Every target does its own set-up: scripts/setup installs missing Debian packages when run as root, and
# otherwise says exactly what is missing.

CARGO ?= cargo
PROFILE ?= dev
TARGET := $(abspath $(or $(CARGO_TARGET_DIR),target))
BIN_dev := $(TARGET)/debug/noroshi
BIN_release := $(TARGET)/release/noroshi
# Some ninety crates of Amazon's SDK, thirty of the sampler, a score for Kafka and fifteen of OpenTelemetry, which only
# what is released has.
FEATURES_release := --features noroshi/sqs,noroshi/firehose,noroshi/kafka,noroshi/otel,noroshi/profiling
# Everything: what is checked.
FEATURES_all := --features noroshi/sqs,noroshi/firehose,noroshi/kafka,noroshi/otel,noroshi/heap-profiling
# What is tested: one build serves unit tests, end-to-end tests and injected faults. Heap profiles need another allocator.
FEATURES_dev := --features noroshi/sqs,noroshi/firehose,noroshi/kafka,noroshi/otel,noroshi/profiling
NOROSHI_BIN ?= $(BIN_$(PROFILE))
# Injected faults are for debug builds alone (crates/supervision).
# grep answers 1 where the text is absent, and 2 where it cannot read the binary.
NO_FAULTS_release = grep -q NOROSHI_FAULT_FILE $(BIN_release); test $$? -eq 1

# A missing or changed snapshot is a failure, never a silent update.
export INSTA_UPDATE ?= no

.PHONY: help run build test unit e2e faults long check advisories bench fuzz

help: ## This list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' Makefile

run: ## Build the release binary and start a development node in ./noroshi-data
	@scripts/setup build
	$(CARGO) build --release --locked --bin noroshi $(FEATURES_release)
	@$(NO_FAULTS_release)
	$(BIN_release) serve --dev

test: unit e2e ## Every test: units, components, and end to end with other people's clients

unit: ## Tests of the workspace alone
	@scripts/setup build engines
	$(CARGO) test --workspace $(FEATURES_dev) --no-fail-fast --locked
	$(CARGO) test -p noroshi-profiling --features heap --locked

e2e: ## End-to-end tests of the built binary (PROFILE=release for the release binary)
	@scripts/setup build engines
	$(CARGO) build --profile $(PROFILE) --locked --bin noroshi $(FEATURES_$(PROFILE))
	$(NO_FAULTS_$(PROFILE))
	NOROSHI_BIN=$(NOROSHI_BIN) e2e/run

faults: ## Engines and nodes killed, paused and parted under load, Amazon SQS and Apache Kafka (some 9 minutes)
	@scripts/setup build engines
	$(CARGO) build --locked --bin noroshi $(FEATURES_dev)
	NOROSHI_BIN=$(BIN_dev) NOROSHI_FEATURES="$(FEATURES_dev)" e2e/run faults sqs kafka

long: ## What takes too long for every change: Autobahn's compressed messages, other people's large programs (PROFILE=release)
	@scripts/setup build engines
	$(CARGO) build --profile $(PROFILE) --locked --bin noroshi $(FEATURES_$(PROFILE))
	NOROSHI_BIN=$(NOROSHI_BIN) e2e/run autobahn-deflate compatibility
	$(CARGO) test -p noroshi --locked profile # what a build without optional features says of them

check: ## Format, lints, documentation, dependencies
	@scripts/setup build deny
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets $(FEATURES_all) --locked -- -D warnings
	# What stands in the place of a feature that is off.
	$(CARGO) clippy -p noroshi -p noroshi-events -p noroshi-otel -p noroshi-profiling -p noroshi-sqs --all-targets --locked -- -D warnings
	$(CARGO) clippy -p noroshi-gateway --locked -- -D warnings # without io_uring
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --workspace --no-deps --document-private-items $(FEATURES_all) --locked
	$(CARGO) deny --locked --log-level error check licenses bans sources

advisories: ## Known vulnerabilities of the dependencies (fetches the RustSec database from GitHub)
	@scripts/setup build deny
	$(CARGO) deny --locked check advisories

bench: ## The measurements of docs/performance.md, on this machine
	@scripts/setup build
	$(CARGO) build --release --locked --bin noroshi $(FEATURES_release)
	scripts/bench $(BIN_release)

fuzz: ## Every fuzz target for SECONDS_EACH (default 30)
	@scripts/setup build fuzz
	scripts/fuzz $(or $(SECONDS_EACH),30)
