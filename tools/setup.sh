#!/usr/bin/env bash
# Installs what the build and the tests need and the machine lacks, with the system's package manager, and says what.
# Safe to run twice: what is there already is left alone.
#
# usage: tools/setup.sh build|test|torch|aarch64|wasm
set -euo pipefail

purpose=${1:?usage: tools/setup.sh build|test|torch|aarch64|wasm}

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; elif command -v sudo >/dev/null; then sudo "$@"; else
        echo "setup: error: need root (or sudo) to run: $*" >&2
        exit 2
    fi
}

updated=no
install() { # install COMMAND-OR-MODULE PACKAGE...: tries each package name in turn
    local missing=$1
    shift
    for package in "$@"; do
        echo "setup: $missing is missing, installing $package"
        if command -v apt-get >/dev/null; then
            [ $updated = yes ] || as_root apt-get update -qq && updated=yes
            as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $package >/dev/null && return
        elif command -v dnf >/dev/null; then as_root dnf install -y -q $package && return
        elif command -v pacman >/dev/null; then as_root pacman -S --noconfirm --needed $package && return
        elif command -v brew >/dev/null; then brew install -q $package && return
        else break; fi
    done
    echo "setup: error: could not install $missing; install it by hand (tried packages: $*)" >&2
    exit 2
}

# The linker, and the compiler of the one C dependency there may be.
command -v cc >/dev/null || install cc gcc
command -v make >/dev/null || install make make
# rustup reads rust-toolchain.toml; Debian's rustc-web is a plain compiler, recent enough.
if ! command -v cargo >/dev/null; then
    install cargo rustup "cargo-web rustc-web"
    command -v rustup >/dev/null && rustup toolchain install
fi

# An OpenCL platform, for the device's own kernels: PoCL runs them on the processor. Without one, runs are simulated.
opencl_there() { ls /etc/OpenCL/vendors/*.icd >/dev/null 2>&1 && ldconfig -p | grep -q 'libOpenCL\.so'; }
if [[ $purpose == build || $purpose == test ]] && ! opencl_there; then
    if command -v apt-get >/dev/null; then
        # In a shell of its own: what only rehearses without it should not end here.
        (install "an OpenCL platform" "pocl-opencl-icd ocl-icd-libopencl1") ||
            echo "setup: hint: without an OpenCL platform \`device run\` is simulated, and the tests of kernels fail"
    else
        echo "setup: hint: no OpenCL platform here; install one (such as PoCL), or \`device run\` is simulated"
    fi
fi

if [ "$purpose" = test ]; then
    # Pictures of the site and the independent implementation in numpy; the tests name the interpreter they use.
    /usr/bin/env python3 -c 'import numpy' 2>/dev/null || /usr/bin/python3 -c 'import numpy' 2>/dev/null ||
        install numpy python3-numpy
    # Makes single system calls of the ledger fail.
    command -v strace >/dev/null || install strace strace
fi
gocode=/usr/share/gocode/src/golang.org/x/mod/sumdb/tlog
if [ "$purpose" = test ] && ! { command -v go >/dev/null && [ -d $gocode ]; }; then
    # Go's packages for transparency logs, which the log is held against. In a shell of its own: elsewhere than on Debian
    # they have other places, and the tests say that they did without.
    (install "Go with golang.org/x/mod" "golang-go golang-golang-x-mod-dev") ||
        echo "setup: hint: without Debian's golang-golang-x-mod-dev the log is not compared with Go's packages"
fi
if [ "$purpose" = test ]; then
    # NVIDIA's compiler and disassembler: kernels for its cards are compiled, and their machine code read, without a card.
    # They are NVIDIA's property, so they are fetched and not kept here. This compiler's code runs under drivers of CUDA 12
    # and later.
    cuda=${CARGO_TARGET_DIR:-target}/cuda
    if [ ! -e "$cuda/libnvrtc.so.12" ] || [ ! -e "$cuda/nvdisasm" ]; then
        python=python3
        $python -m pip --version >/dev/null 2>&1 || python=/usr/bin/python3
        $python -m pip --version >/dev/null 2>&1 || install pip python3-pip
        echo "setup: NVRTC and nvdisasm are missing, fetching them into $cuda"
        mkdir -p "$cuda/wheels"
        $python -m pip download --quiet --no-deps --dest "$cuda/wheels" \
            nvidia-cuda-nvrtc-cu12==12.9.86 nvidia-cuda-nvdisasm==13.5.37
        for wheel in "$cuda"/wheels/*.whl; do $python -m zipfile -e "$wheel" "$cuda/wheels"; done
        mv "$cuda"/wheels/nvidia/cuda_nvrtc/lib/libnvrtc-builtins.so.12.* "$cuda"
        mv "$cuda/wheels/nvidia/cuda_nvrtc/lib/libnvrtc.so.12" "$cuda"
        mv "$cuda/wheels/nvidia/cu13/bin/nvdisasm" "$cuda"
        chmod +x "$cuda/nvdisasm"
        rm -r "$cuda/wheels"
    fi
fi
if [ "$purpose" = test ]; then
    # Verifiers of COSE receipts and of the OpenAPI document, as tests use them. What is there is kept while the list and
    # the interpreter are the same: parts of it are compiled for one version.
    python=python3
    $python -m pip --version >/dev/null 2>&1 || python=/usr/bin/python3
    $python -m pip --version >/dev/null 2>&1 || install pip python3-pip
    packages=${CARGO_TARGET_DIR:-target}/python
    wanted=$($python -c 'import sys; print(sys.executable); print(sys.version)' && cat "$(dirname "$0")/python.txt")
    if [ "$(cat "$packages/installed" 2>/dev/null)" != "$wanted" ]; then
        echo "setup: verifiers in Python are missing, fetching them into $packages"
        rm -rf "$packages"
        $python -m pip install --quiet --disable-pip-version-check --no-deps --target "$packages" \
            --requirement "$(dirname "$0")/python.txt"
        echo "$wanted" >"$packages/installed"
    fi
fi
if [ "$purpose" = torch ]; then
    # Debian's PyTorch takes its matrix products from the system's BLAS, and the plain one is very slow.
    python=${TORCH_PYTHON:-/usr/bin/python3}
    # The system's package is of no use to another python.
    [ "$python" != /usr/bin/python3 ] || "$python" -c 'import torch' 2>/dev/null ||
        install PyTorch "python3-torch libopenblas0-pthread" python3-torch
    "$python" -c 'import torch, numpy, tomllib' || {
        echo "setup: error: $python lacks torch or numpy, or is older than 3.11; name another in TORCH_PYTHON" >&2
        exit 2
    }
fi
if [[ $purpose == test || $purpose == torch ]] && ! cargo nextest --version >/dev/null 2>&1; then
    echo "setup: cargo-nextest is missing, building it"
    cargo install --locked --quiet cargo-nextest
fi

there() { dpkg-query -W -f '${Status}\n' "$@" 2>/dev/null | grep -c '^install ok installed'; }
if [ "$purpose" = aarch64 ]; then
    # A compiler with the standard library of another machine, its linker and C library, and what runs the result. The
    # library is Debian's, and belongs to Debian's compiler.
    packages="rustc-web cargo-web libstd-rust-web-dev:arm64 gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user"
    if ! command -v apt-get >/dev/null || [ "$(dpkg --print-architecture)" != amd64 ]; then
        echo "setup: error: programs for AArch64 are built with Debian's packages on x86-64; wanted: $packages" >&2
        exit 2
    fi
    if [ "$(there $packages)" != "$(wc -w <<<"$packages")" ]; then
        # The architecture is where arm64's standard library is found. Nothing that is installed may go for it.
        dpkg --print-foreign-architectures | grep -qx arm64 || as_root dpkg --add-architecture arm64
        updated=no
        install "a compiler for AArch64" "--no-remove $packages"
    fi
fi

if [ "$purpose" = wasm ]; then
    command -v node >/dev/null || install node nodejs
    # A toolchain of rustup's may have the standard library for WebAssembly. Otherwise Debian's compiler, which comes with the
    # library's source, builds it; its linker knows WebAssembly.
    packages="rustc-web cargo-web rust-web-src lld-22"
    if [ ! -d "$(rustc --print sysroot)/lib/rustlib/wasm32-unknown-unknown" ]; then
        if ! command -v apt-get >/dev/null; then
            echo "setup: error: the standard library for WebAssembly is missing: rustup target add wasm32-unknown-unknown" >&2
            exit 2
        fi
        [ "$(there $packages)" = "$(wc -w <<<"$packages")" ] ||
            install "a compiler for WebAssembly" "--no-remove $packages"
    fi
fi
