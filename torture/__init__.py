"""The torture chamber: everything is killed, starved, damaged and fed with rubbish on purpose. `make torture`.

`tests/attack` tries the same on few cases at every `make test`.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
if str(ROOT / "tests") not in sys.path:
    sys.path.append(str(ROOT / "tests"))  # what tests of several rooms are made with: tiny corpora, models, studies
