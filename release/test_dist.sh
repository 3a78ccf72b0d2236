#!/usr/bin/env bash
# Installs a built distribution alone into an empty environment and runs what a user runs first, in an empty folder.
# Usage: release/test_dist.sh DIST.whl|DIST.tar.gz CONSTRAINTS [WORK]
set -euo pipefail
dist=$(realpath "$1")
constraints=$(realpath "$2")
work=${3:-$(mktemp -d)}
mkdir -p "$work"
cd "$work"
unset PYTHONPATH
export HF_HUB_OFFLINE=1

python3 -m venv empty
empty/bin/python -m pip install --quiet --constraint "$constraints" "torch==2.13.0"
empty/bin/python -m pip install --quiet --constraint "$constraints" "$dist"
babelcap=$work/empty/bin/babelcap
share=$work/empty/share/babelcap
mkdir -p user
cd user

"$babelcap" --version
../empty/bin/python -c "
import babelcap, pathlib, sys
assert pathlib.Path(babelcap.__file__).is_relative_to(sys.prefix), babelcap.__file__
from PIL import Image, ImageDraw
picture = Image.new('RGB', (256, 256), 'white')
ImageDraw.Draw(picture).ellipse((60, 60, 190, 190), fill='red')
picture.save('drawn.png')
from babelcap.native.int8 import known_levels
print('compiled for this processor:', ', '.join(level.name for level in known_levels()) or 'nothing')"

# The base models are in the package: a small captioner is joined of them, nothing is trained or fetched.
"$babelcap" world base -o bases --size micro-florence-s --variant english
"$babelcap" model prepare micro-florence-s --florence bases/florence-s-* --gemma bases/florence-s-*/decoder_tokenizer -o models/micro
"$babelcap" model check models/micro
"$babelcap" caption drawn.png --model models/micro --language en | tee caption.txt
grep -q "^The image shows" caption.txt

"$babelcap" laws predict paper-v1 --at P=11.2218e9,S=10.24e6
"$babelcap" laws fit "$share/results/small/runs.jsonl" --form pst | tee law.txt
grep -qE "^[0-9]+ of [0-9]+ runs" law.txt  # how many are kept there changes with the study
"$babelcap" report build "$share/results/small" -o page
test -s page/index.html
"$babelcap" study run "$share/configs/study/micro.toml" --dry-run | tail -n 3
echo "test_dist: $(basename "$dist") works in an empty environment"
