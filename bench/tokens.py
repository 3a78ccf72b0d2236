"""The Java-free tokeniser against the COCO tools' own: `python bench/tokens.py --jar JAR FILE ... [--show 5]`.

JAR is stanford-corenlp-3.4.1.jar, which pycocoevalcap brings. A FILE has a text a line (.gz too), or tab-separated
columns of which `--column` is taken. The tools read all lines as one text: so does this, a file at a time.
"""

import argparse
import gzip
import subprocess
import tempfile
from pathlib import Path

from babelcap.evaluation.metrics.ptb import PUNCTUATION, ptb_tokenise

COMMAND = ["java", "-Dfile.encoding=UTF-8", "-cp"]
TOKENISER = ["edu.stanford.nlp.process.PTBTokenizer", "-preserveLines", "-lowerCase"]


def read_lines(path: Path, column: int) -> list[str]:
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    texts = (line.split("\t")[column] if "\t" in line else line for line in data.decode().split("\n"))
    return [" ".join(text.split()) for text in texts if text.strip()]


def tools_tokens(lines: list[str], jar: Path) -> list[str]:
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
        file.write("\n".join(lines))
        file.flush()
        done = subprocess.run([*COMMAND, str(jar), *TOKENISER, file.name], capture_output=True, check=True)
    found = done.stdout.decode().split("\n")[: len(lines)]
    return [" ".join(token for token in line.rstrip().split(" ") if token not in PUNCTUATION) for line in found]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--jar", type=Path, required=True)
    parser.add_argument("--column", type=int, default=0, help="of tab-separated lines")
    parser.add_argument("--show", type=int, default=0, help="print so many lines that differ")
    options = parser.parse_args()
    for path in options.files:
        lines = read_lines(path, options.column)
        pairs = zip(lines, tools_tokens(lines, options.jar), strict=True)
        differing = [(line, theirs) for line, theirs in pairs if ptb_tokenise(line) != theirs]
        alike = 1 - len(differing) / max(1, len(lines))
        print(f"{path}: {len(lines):,} lines, {alike:.5f} alike, {len(differing):,} differ", flush=True)
        for line, theirs in differing[: options.show]:
            print(f"  {line}\n    tools {theirs}\n    ours  {ptb_tokenise(line)}")


if __name__ == "__main__":
    main()
