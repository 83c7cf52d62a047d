#!/usr/bin/env bash
# The whole path on this machine: a log, a prediction, a run that agrees, and a run with one flipped bit.
# Everything is written under target/demo; nothing is left running. Needs the binaries: `make demo` builds them first.
set -euo pipefail
cd "$(dirname "$0")/.."

root=$PWD
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
export PATH=$target/debug:$PATH
rm -rf "$target/demo"
mkdir -p "$target/demo"
cd "$target/demo"

ledger=
start() {
    rm -f address
    echo '$ ledger serve --data log --listen 0 &'
    ledger serve --data log --listen 0 --address-file address >ledger.out 2>ledger.err &
    ledger=$!
    for _ in $(seq 100); do
        [ -s address ] && break
        kill -0 "$ledger" 2>/dev/null || break
        sleep 0.1
    done
    [ -s address ] || { echo "demo: error: the log did not start:" >&2; cat ledger.err >&2; exit 1; }
    url=$(cat address)
    cat ledger.out
}
stop() {
    if [ -n "$ledger" ]; then
        kill "$ledger" 2>/dev/null || true
        wait "$ledger" 2>/dev/null || true
        ledger=
    fi
}
trap stop EXIT

say() { printf '\n== %s\n' "$*"; }
run() {
    printf '$ %s\n' "$*"
    "$@"
}
# Runs a command that must end with a given status: a check that cannot fail is no check.
run_ending() {
    local expected=$1 status=0
    shift
    run "$@" || status=$?
    [ "$status" = "$expected" ] || { echo "demo: error: ended with $status, expected $expected" >&2; exit 1; }
}
# The verdict must name what was done to device 1.
expect() {
    tr -s ' ' <verdict.txt | grep -q -- "$1" || { echo "demo: error: the verdict does not name: $1" >&2; exit 1; }
}
# A run.toml here, with the corpus in the checkout.
config() { sed -e "s,\"\.\./,\"$root/," -e "s,^name = .*,name = \"$1\"," -e "s,^seed = .*,seed = $2," "$root/demo/run.toml"; }

say "1. a log of our own, on this machine only"
start

say "2. predict 3 steps on real text, sealed, and commit the prediction to the log"
config "demo" 1 >good.toml
run oracle plan --run good.toml
run oracle predict --run good.toml --steps 0..3 --out good --key predictor.key \
    --commit --ledger "$url" --log-key log/log.pub

say "3. a challenge from a checkpoint that already covers the prediction"
run client challenge --ledger "$url" --log-key log/log.pub --prediction good/prediction --out good/job/challenge.note

say "4. two devices run the job and sign a receipt each, on this program's own kernels where there is OpenCL"
run device list
run device run --job good/job --challenge good/job/challenge.note --devices 2 --steps 0..3 \
    --keys keys --out good/receipts --traces

say "5. reconcile: compare, open the prediction, log the verdict, write good.tally"
run client reconcile --ledger "$url" --log-key log/log.pub --key predictor.key \
    --prediction good/prediction --receipts good/receipts --replay good.toml --out good.tally

say "6. the log stops; a stranger verifies the file offline"
stop
run client verify good.tally --log-key log/log.pub --predictor-key predictor.pub \
    --device-key keys/device-0.pub --device-key keys/device-1.pub

say "7. the same once more, and one bit of one number flips in device 1"
start
config "demo with a flipped bit" 2 >faulty.toml
run oracle predict --run faulty.toml --steps 0..3 --out faulty --key predictor.key \
    --commit --ledger "$url" --log-key log/log.pub
run client challenge --ledger "$url" --log-key log/log.pub --prediction faulty/prediction \
    --out faulty/job/challenge.note
run device run --job faulty/job --challenge faulty/job/challenge.note --devices 2 --steps 0..3 \
    --keys keys --out faulty/receipts --traces \
    --fault bit-flip:device=1,step=1,leaf=3,operation=forward.layer1.attention,element=1234,bit=27
run_ending 1 client reconcile --ledger "$url" --log-key log/log.pub --key predictor.key \
    --prediction faulty/prediction --receipts faulty/receipts --no-replay --out faulty.tally | tee verdict.txt
stop
for part in "diverge at step 1" "device 1 (" "phase leaf" "leaf 3" "operation forward.layer1.attention" \
    "element 1234" "bits expected 0x.*, found 0x" "bit 27 differs" "cause fault"; do expect "$part"; done
run_ending 1 client verify faulty.tally --log-key log/log.pub --predictor-key predictor.pub

say "browse both runs"
echo "\$ $target/debug/ledger serve --data $target/demo/log"
echo "then open http://127.0.0.1:7180/"
echo
echo "demo: ok"
