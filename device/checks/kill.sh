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
# What went wrong stays there to be looked at.
trap '[ $? != 0 ] && echo "kill: see $folder" >&2 || rm -rf "$folder"' EXIT
cd "$folder"

steps=100
sed -e "s,\"\.\./,\"$root/," -e "s,^name = .*,name = \"kill\"," -e "s,^steps = .*,steps = $steps," "$root/demo/run.toml" >run.toml
oracle predict --run run.toml --steps 0..1 --out oracle --key predictor.key >/dev/null 2>&1
# The form of a checkpoint is all that a device can check.
printf 'log.example/kill\n5\nAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n\n\xe2\x80\x94 log.example/kill AAAA\n' >note

run=(device run --job oracle/job --challenge note --keys keys --backend "$backend" --devices 2 --steps "0..$steps"
    --keep-traces 20 --snapshot-every 7 --out)
judged() { (cd "$1" && find . -name 'receipt-*' -type f -o -path './traces/*' -type f | sort | xargs sha256sum); }

began=$(date +%s%N)
"${run[@]}" whole >/dev/null
# Moments are drawn from the time that an uninterrupted run takes.
milliseconds=$((($(date +%s%N) - began) / 1000000 + 1))
judged whole >expected
[ "$(wc -l <expected)" -gt 40 ] || { echo "kill: error: nothing to compare" >&2; exit 1; }

port=$((20000 + RANDOM % 10000))
done=0 finished=0 resumed=0
while [ "$done" -lt "$kills" ] || [ "$finished" = 0 ]; do
    pids=() ranks=()
    for rank in 0 1; do
        if [ ! -e "out/receipt-$rank.cose" ] || [ -e "out/work/rank-$rank" ]; then
            "${run[@]}" out --rank "$rank" --peers "127.0.0.1:$port,127.0.0.1:$((port + 1))" --peer-timeout 5 \
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
        moment=$((RANDOM * 32768 + RANDOM))
        moment=$((moment % milliseconds))
        sleep "$((moment / 1000)).$(printf %03d $((moment % 1000)))"
        kill -9 "${pids[$((RANDOM % ${#pids[@]}))]}" 2>/dev/null || true
        [ "$((RANDOM % 5))" = 0 ] && kill -9 "${pids[@]}" 2>/dev/null || true
    fi
    killed=0
    for at in "${!pids[@]}"; do
        status=0
        wait "${pids[$at]}" 2>/dev/null || status=$?
        # One that had ended before the signal is not counted.
        [ "$status" = 137 ] && killed=1
        grep -q "went on from step [1-9]" "said-${ranks[$at]}" && resumed=$((resumed + 1))
        ! grep -q panicked "said-${ranks[$at]}" || { cat "said-${ranks[$at]}" >&2; exit 1; }
    done
    done=$((done + killed))
done
echo "kill: $done kills, $finished runs went on to the same bits ($resumed devices ended after going on from a snapshot)"
