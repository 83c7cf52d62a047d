#!/usr/bin/env bash
# The same bits elsewhere: builds the tests of `step` for AArch64 and runs them under an emulator, which computes each
# floating-point operation in integers. They hold NEON and the scalar vector to the reference, kernel by kernel, and
# whole steps to the records in fixtures/step, which were made on x86-64. On AArch64 itself they run as they are.
#
# usage: tools/aarch64.sh
set -euo pipefail
cd "$(dirname "$0")/.."

target=aarch64-unknown-linux-gnu
tests=(--test fixtures --test operations --test backends --test kernels)
if [ "$(uname -m)" = aarch64 ]; then
    command=(cargo test)
else
    tools/setup.sh aarch64
    # Debian's compiler by its path: rustup's has no standard library for AArch64, and its own target folder: a
    # compiler does not reuse what another has built.
    export PATH=/usr/bin:$PATH RUSTC=/usr/bin/rustc RUSTDOC=/usr/bin/rustdoc
    export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target}/aarch64
    export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
    export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER=qemu-aarch64
    # The C library is arm64's own, which comes with the standard library. The cross compiler's (`-L`) is of another
    # build: a program with the loader of one and the library of the other hangs at its first thread.
    command=(/usr/bin/cargo test --target $target)
fi
output=$(mktemp)
trap 'rm -f "$output"' EXIT
"${command[@]}" --locked --quiet -p step "${tests[@]}" -- --nocapture | tee "$output"

steps=$(awk '/ on neon: [0-9]+ records equal$/ { steps += $(NF - 2) } END { print steps + 0 }' "$output")
[ "$steps" -gt 0 ] || { echo "aarch64: error: no step was compared on NEON" >&2; exit 1; }
echo "aarch64: every record equal to the reference on $steps steps"
