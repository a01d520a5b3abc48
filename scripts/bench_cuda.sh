#!/usr/bin/env bash
# The tables of bench_decode and bench_serving on an NVIDIA GPU, and that the text stays lossless
# there. Needs a torch build with CUDA; takes about ten minutes. Writes into $OUT (default: ./cuda).
#
#     OUT=results scripts/bench_cuda.sh
set -euo pipefail
cd "$(dirname "$0")/.."
PY=${PY:-.venv/bin/python}
[ -x "$PY" ] || PY=python3
OUT=${OUT:-cuda}
mkdir -p "$OUT"

"$PY" - <<'CHECK' || { echo "no CUDA device that torch can use: nothing measured" >&2; exit 1; }
import sys
import torch
if not torch.cuda.is_available():
    sys.exit(1)
print(torch.cuda.get_device_name(), "torch", torch.__version__)
CHECK

# float32 first: there the texts at T = 0 must be equal. TF32 would round away what equality needs.
export NVIDIA_TF32_OVERRIDE=0
"$PY" scripts/check_lossless.py --model tiny --device cuda --prompts 100 --json "$OUT/lossless.json"
for dtype in float32 bfloat16; do
  "$PY" scripts/bench_decode.py --quick --device cuda --clock wall --dtype "$dtype" \
    --resume "$OUT/decode-$dtype.jsonl" --json "$OUT/decode-$dtype.json" | tee "$OUT/decode-$dtype.txt"
  "$PY" scripts/bench_serving.py --device cuda --clock wall --dtype "$dtype" \
    --json "$OUT/serving-$dtype.json" | tee "$OUT/serving-$dtype.txt"
done
