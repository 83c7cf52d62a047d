#!/usr/bin/env bash
# Kills a device process with SIGKILL at random moments, over and over, and looks whether the run that goes on comes to the
# receipts and traces of one that was never interrupted. Usage: device/checks/kill.sh [KILLS] [BACKEND] [SEED]
set -euo pipefail
cd "$(dirname "$0")/../.."

kills=${1:-50} backend=${2:-simulated} RANDOM=${3:-1}
root=$PWD
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
export PATH=$target/debug:$PATH
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

steps=40
sed -e "s,\"\.\./,\"$root/," -e "s,^name = .*,name = \"kill\"," -e "s,^steps = .*,steps = $steps," "$root/demo/run.toml" >run.toml
oracle predict --run run.toml --steps 0..1 --out oracle --key predictor.key >/dev/null 2>&1
# The form of a checkpoint is all that a device can check.
printf 'log.example/kill\n5\nAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n\n\xe2\x80\x94 log.example/kill AAAA\n' >note

run() { # OUT, then more flags
    device run --job oracle/job --challenge note --keys keys --backend "$backend" --devices 2 --steps "0..$steps" \
        --keep-traces 20 --snapshot-every 3 --out "$@"
}
judged() { (cd "$1" && find . -name 'receipt-*' -type f -o -path './traces/*' -type f | sort | xargs sha256sum); }

run whole >/dev/null
judged whole >expected
[ "$(wc -l <expected)" -gt 40 ] || { echo "kill: error: nothing to compare" >&2; exit 1; }

port=$((20000 + RANDOM % 10000))
done=0 finished=0 resumed=0
while [ "$done" -lt "$kills" ] || [ "$finished" = 0 ]; do
    pids=() ranks=()
    for rank in 0 1; do
        if [ ! -e "out/receipt-$rank.cose" ] || [ -e "out/work/rank-$rank" ]; then
            run out --rank "$rank" --peers "127.0.0.1:$port,127.0.0.1:$((port + 1))" --peer-timeout 5 \
                >"said-$rank" 2>&1 &
            pids+=($!) ranks+=("$rank")
        fi
    done
    if [ "${#pids[@]}" = 0 ]; then
        judged out >found
        cmp expected found || { echo "kill: error: other bits after $done kills" >&2; exit 1; }
        rm -rf out
        finished=$((finished + 1))
        continue
    fi
    if [ "$done" -lt "$kills" ]; then
        sleep "0.$(printf %03d $((RANDOM % 900)))"
        victim=$((RANDOM % ${#pids[@]}))
        if kill -9 "${pids[$victim]}" 2>/dev/null; then
            done=$((done + 1))
            [ "$((RANDOM % 5))" = 0 ] && kill -9 "${pids[@]}" 2>/dev/null || true
        fi
    fi
    for at in "${!pids[@]}"; do
        wait "${pids[$at]}" 2>/dev/null || true
        grep -q "went on from step [1-9]" "said-${ranks[$at]}" && resumed=$((resumed + 1))
        ! grep -q panicked "said-${ranks[$at]}" || { cat "said-${ranks[$at]}" >&2; exit 1; }
    done
done
echo "kill: $done kills, $finished runs went on to the same bits ($resumed ends after going on from a snapshot)"
