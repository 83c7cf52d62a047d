#!/usr/bin/env bash
# The same answers in a page: builds `browser` for WebAssembly and holds what it says about every fixture, and about
# every changed byte of a bundle, against this machine's own answers. Node runs it.
#
# usage: tools/wasm.sh
set -euo pipefail
cd "$(dirname "$0")/.."

target=wasm32-unknown-unknown
folder=$(realpath -m "${CARGO_TARGET_DIR:-target}")
build=(build --locked --quiet -p browser --lib --profile wasm --target $target)
tools/setup.sh wasm
if [ -d "$(rustc --print sysroot)/lib/rustlib/$target" ]; then
    built=$folder
    cargo "${build[@]}"
else
    # Debian's compiler by its path, and a target folder of its own, as in aarch64.sh. It has no built library for
    # WebAssembly, so it builds one from its source, which a stable compiler does only when told that it is the one that the
    # source belongs to. That is for the module alone.
    built=$folder/wasm
    PATH=/usr/bin:$PATH RUSTC=/usr/bin/rustc RUSTDOC=/usr/bin/rustdoc RUSTC_BOOTSTRAP=1 CARGO_TARGET_DIR=$built \
        CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER=/usr/bin/wasm-ld-22 \
        /usr/bin/cargo "${build[@]}" -Zbuild-std=std,panic_abort
fi
module=$folder/browser.wasm
cp "$built/$target/wasm/browser.wasm" "$module"

output=$(mktemp)
trap 'rm -f "$output"' EXIT
# One after the other, so that the times that are told are not of two at once.
BROWSER_WASM=$module cargo test --locked --quiet -p browser --test wasm -- --nocapture --test-threads 1 | tee "$output"
answers=$(awk '/wasm: [0-9]+ answers equal$/ { answers += $2 } END { print answers + 0 }' "$output")
[ "$answers" -gt 0 ] || { echo "wasm: error: no answer was compared" >&2; exit 1; }
echo "wasm: $answers answers equal; $module has $(wc -c <"$module") bytes, $(gzip -c "$module" | wc -c) compressed"
