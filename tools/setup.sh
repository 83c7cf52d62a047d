#!/usr/bin/env bash
# Installs what the build and the tests need and the machine lacks, with the system's package manager, and says what.
# Safe to run twice: what is there already is left alone.
#
# usage: tools/setup.sh build|test|torch
set -euo pipefail

purpose=${1:?usage: tools/setup.sh build|test|torch}

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

if [ "$purpose" = test ]; then
    # Pictures of the site and the independent implementation in numpy; the tests name the interpreter they use.
    /usr/bin/env python3 -c 'import numpy' 2>/dev/null || /usr/bin/python3 -c 'import numpy' 2>/dev/null ||
        install numpy python3-numpy
fi
if [ "$purpose" = torch ]; then
    # Debian's PyTorch takes its matrix products from the system's BLAS, and the plain one is very slow.
    python=${TORCH_PYTHON:-/usr/bin/python3}
    "$python" -c 'import torch' 2>/dev/null || install PyTorch "python3-torch libopenblas0-pthread" python3-torch
    "$python" -c 'import torch, tomllib' || {
        echo "setup: error: $python lacks torch, or is older than 3.11; name one that has both in TORCH_PYTHON" >&2
        exit 2
    }
fi
if [ "$purpose" != build ] && ! cargo nextest --version >/dev/null 2>&1; then
    echo "setup: cargo-nextest is missing, building it"
    cargo install --locked --quiet cargo-nextest
fi
