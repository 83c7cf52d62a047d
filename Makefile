# Two commands do everything on a fresh machine: `make demo` shows the whole path, `make test` checks it.

# A third, `make torch-check`, compares the mathematics with PyTorch's; `make torch-record` also writes down the figures.

.PHONY: demo test build campaign kill-check opencl-check torch-check torch-record aarch64-check wasm-check elementary-check

demo:
	@tools/setup.sh build
	cargo build --workspace --bins
	@demo/run.sh

test:
	@tools/setup.sh test
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --quiet -- -D warnings
	cargo build --workspace --bins --quiet
	cargo nextest run --workspace --no-fail-fast
	@demo/run.sh >/dev/null && echo "demo: ok"

build:
	@tools/setup.sh build
	cargo build --workspace --bins

torch-check torch-record: export TORCH_PYTHON ?= /usr/bin/python3

torch-check:
	@tools/setup.sh torch
	cargo nextest run -p tests --test torch --no-capture

torch-record:
	@tools/setup.sh torch
	UPDATE_FIXTURES=1 cargo nextest run -p tests --test torch --no-capture --test-threads 1

# The device's own kernels on an OpenCL device: every kernel, then a hundred whole steps on 1, 2 and 4 devices.
opencl-check:
	@tools/setup.sh test
	cargo nextest run -p device
	@echo "opencl: 100 steps equal on 1, 2 and 4 devices"

# The log's server, killed at 200 random moments under load. The tests do it 40 times. KILL_SEED chooses the moments.
kill-check: export KILLS ?= 200
kill-check:
	@tools/setup.sh test
	cargo nextest run -p ledger --test kill --no-capture

# The same bits on another machine: an emulated one. Debian x86-64, or AArch64 itself.
aarch64-check:
	@tools/aarch64.sh

# The same answers in a web page: `verify` as WebAssembly, under node, on every fixture. The module is target/browser.wasm.
wasm-check:
	@tools/wasm.sh

# Thousands of random faults, each in a run of its own, and what the comparison says of each: make campaign RUNS=2000
campaign: RUNS ?= 2000
campaign:
	@tools/setup.sh build
	cargo build --workspace --bins --quiet
	cargo run -p tests --example campaign --quiet -- --runs $(RUNS)

# The elementary functions on all 2^32 inputs, on every backend and beside the true values. Long.
elementary-check:
	@tools/elementary.sh
