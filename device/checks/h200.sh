#!/usr/bin/env bash
# Checks and times a card of NVIDIA with nothing but the program `device` and this checkout: no network, no Rust. Prints PASS, or the
# first bit that differs, then how fast it is. Takes at most six minutes.
#
# usage: device/checks/h200.sh [DEVICE]          DEVICE is target/release/device unless given
#
# It needs the card's driver and NVRTC, CUDA's compiler as a library: of a toolkit, of Python's package
# nvidia-cuda-nvrtc-cu12 (or nvidia-cuda-nvrtc for drivers of CUDA 13), or the folder target/cuda that `tools/setup.sh test` fills,
# copied beside the program (DEVICE's folder, or `cuda` in it). TALLYSTICK_NVRTC names its file if it lies elsewhere.
#
# BACKEND=opencl runs the same on an OpenCL device, RUNS="FILE..." compares other runs, BENCH=FILE times another.
set -euo pipefail
cd "$(dirname "$0")/../.."

device=${1:-target/release/device}
backend=${BACKEND:-cuda}
runs=${RUNS-device/checks/gpt2-wide.toml device/checks/llama-wide.toml}
if ! [ -x "$device" ]; then
    echo "h200: error: no program at $device; \`cargo build --release -p device\` makes it, elsewhere if need be" >&2
    exit 2
fi

command -v nvidia-smi >/dev/null && nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm --format=csv,noheader
"$device" list

began=$SECONDS
code=0
timeout 200 "$device" check --backend "$backend" --drill $(printf -- '--run %s ' $runs) || code=$?
echo "check: $((SECONDS - began)) s"
case $code in
0) verdict=PASS ;;
1) verdict="FAIL: bits differ" ;;
124) verdict="FAIL: not done in 200 s" ;;
*) verdict="FAIL: could not check" ;;
esac

# Speed is told whatever the bits are; how long it took is no verdict.
began=$SECONDS
timeout 120 "$device" bench --backend "$backend" --run "${BENCH:-device/checks/gpt2-124m.toml}" ||
    echo "bench: not done ($?)"
echo "bench: $((SECONDS - began)) s"
echo "h200: $verdict"
[ "$verdict" = PASS ]
