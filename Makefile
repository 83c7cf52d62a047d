# Two commands do everything on a fresh machine: `make demo` shows the whole path, `make test` checks it.

.PHONY: demo test build lint

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
