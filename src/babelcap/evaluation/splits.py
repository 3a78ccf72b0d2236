"""Which split of a corpus is evaluated on: importers keep the name that a dataset gives its own."""

from babelcap.data.store.store import Corpus
from babelcap.errors import UserError
from babelcap.measures import EVAL

CANDIDATES = (EVAL, "val", "test")  # the first that is there


def find_split(corpus: Corpus, wanted: str | None = None) -> str | None:
    """The wanted split, or by default the one that is there; None where it is not."""
    return next((name for name in ([wanted] if wanted else CANDIDATES) if name in corpus.splits), None)


def choose_split(corpus: Corpus, wanted: str | None = None) -> str:
    found = find_split(corpus, wanted)
    if found is None:
        asked = f"split '{wanted}'" if wanted else f"split of {', '.join(CANDIDATES)}"
        raise UserError(f"{corpus.folder}: no {asked}; the corpus has {', '.join(corpus.splits)}")
    return found
