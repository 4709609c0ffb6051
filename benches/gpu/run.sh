#!/usr/bin/env bash
# Runs, in one call, every benchmark and check that needs a GPU: weights, graphs, parity with the CPU, the ladder,
# torch for comparison, batch sizes, running out of memory, and GPU utilisation.
#
#     benches/gpu/run.sh OUT
#
# OUT receives a log per step, the figures as JSON, CSV and SVG, and summary.md. A failed step is noted in summary.md.
# The next step still runs, unless there is no model. Environment variables:
#   TOPICMILL        the program [target/release/topicmill]
#   ORT_DYLIB_PATH   libonnxruntime.so of onnxruntime-gpu, with its providers next to it
#   PYTHON           a Python with the packages in requirements/model-tools.txt [python3]
#   DEVICE           cuda, or cpu to try the script without a GPU [cuda]
#   SHAPE            shape of the random weights: bart-large, or a tiny one to try the script [bart-large]
#   POSTS            number of posts in the timed steps [2000]
set -uo pipefail

top=$(cd "$(dirname "$0")/../.." && pwd)
out=$(mkdir -p "$1" && cd "$1" && pwd)
cd "$top" || exit 1
topicmill=${TOPICMILL:-target/release/topicmill} python=${PYTHON:-python3}
device=${DEVICE:-cuda} shape=${SHAPE:-bart-large} posts=${POSTS:-2000}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
graphs=cpu-fp32
[ "$device" = cpu ] || graphs=cpu-fp32,cuda-fp16
summary=$out/summary.md

step() {
    local name=$1 start=$SECONDS
    shift
    if "$@" >"$out/$name.log" 2>&1; then
        echo "- $name: done in $((SECONDS - start)) s" >>"$summary"
    else
        echo "- $name: **failed** with $? after $((SECONDS - start)) s, see $name.log" >>"$summary"
        tail -n 3 "$out/$name.log" | sed 's/^/    /' >>"$summary"
        return 1
    fi
}

# Runs a step and appends mean GPU utilisation, peak memory and mean power to the summary, excluding idle samples.
watched() {
    local name=$1 watch=
    shift
    if [ "$device" != cpu ]; then
        nvidia-smi --query-gpu=utilization.gpu,memory.used,memory.total,power.draw --format=csv,noheader,nounits -lms 500 \
            >"$out/$name.gpu.csv" &
        watch=$!
    fi
    step "$name" "$@"
    local ended=$?
    if [ -n "$watch" ]; then
        kill "$watch"
        awk -F', *' '$1 > 0 {n++; u += $1; m = $2 > m ? $2 : m; t = $3; w += $4}
            END {if (n) printf "    GPU %.0f %% busy, memory %.0f %%, %.0f W\n", u / n, 100 * m / t, w / n}' \
            "$out/$name.gpu.csv" >>"$summary"
    fi
    return $ended
}

{
    echo "# $device, random $shape, $posts posts"
    echo
    date -u +%Y-%m-%d
    "$topicmill" --version
    [ "$device" = cpu ] || nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
    "$python" -c 'import torch, transformers; print("torch", torch.__version__, "transformers", transformers.__version__)'
    echo
} >"$summary" 2>&1

model=$work/model
step weights "$python" tools/random_model.py "$shape" "$work/hf" --seed 1 || exit 1
step graphs "$python" tools/model.py "$work/hf" "$model" --graphs "$graphs" || exit 1
step verify "$topicmill" model verify "$model"
"$python" benches/common.py "$posts" >"$work/posts.ndjson" || exit 1

# Scores the same posts on the CPU and on the device.
head -n 32 "$work/posts.ndjson" >"$work/few.ndjson"
score() { "$topicmill" score "$work/few.ndjson" "$work/$1.ndjson" --model "$model" --device "$2"; }
parity() {
    score reference cpu && score found "$device" &&
        "$python" benches/gpu/compare.py "$work/reference.ndjson" "$work/found.ndjson"
}
step parity parity && sed -n '$s/^/    /p' "$out/parity.log" >>"$summary"

step bench "$topicmill" bench --model "$model" --device "$device" --texts "$work/posts.ndjson" --posts "$((posts / 4))"
step ladder "$python" benches/ladder/run.py --hf "$work/hf" --out "$out" --texts "$work/posts.ndjson" \
    --model "$model" --device "$device" --posts "$((posts / 8))"

# A budget that exceeds the memory is halved until it fits, and every post is scored.
score_all() { "$topicmill" score "$work/posts.ndjson" "$work/$1.ndjson" --model "$model" --device "$device" "${@:2}"; }
out_of_memory() {
    TOPICMILL__CLASSIFY__BATCH_TOKENS=50000000 score_all halved && [ "$(wc -l <"$work/halved.ndjson")" = "$posts" ]
}
step out-of-memory out_of_memory
watched busy score_all all

# Labels posts through a database, and asks what limited the run.
database=sqlite:$work/demo.db
step demo "$topicmill" --database "$database" demo --model "$model" --device "$device" &&
    step limit "$topicmill" --database "$database" doctor --source sample &&
    sed 's/^/    /' "$out/limit.log" >>"$summary"

cat "$summary"
