#!/usr/bin/env bash
# The elementary functions on all 2^32 inputs (tools/elementary). Minutes on two idle cores for each function.
#
# usage: tools/elementary.sh [--every N] [FUNCTION...]
set -euo pipefail
cd "$(dirname "$0")/.."
tools/setup.sh build
# The C library would be compiled for the processor at hand alone unless another is named.
export TARGET_CPU=${TARGET_CPU:-x86-64-v3} CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target}/elementary
cargo run --manifest-path tools/elementary/Cargo.toml --release --locked --quiet -- "$@"
