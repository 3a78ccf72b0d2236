"""Under which licence annotations may be used: what a corpus' provenance says of those who made them (`origin`)."""

import re

from babelcap.data.store.manifest import Manifest

NOT_SAID = "not said"
LICENCES = "licences"  # of the provenance: origin -> licence
MADE_OF = "/paragraph"  # of an origin whose texts are put together from another's


def licence_of(origin: str, manifest: Manifest) -> str:
    known = manifest.provenance.get(LICENCES)
    licence = known.get(origin.removesuffix(MADE_OF), "") if isinstance(known, dict) else ""
    return licence if isinstance(licence, str) and licence else NOT_SAID


def has_word(licence: str, word: str) -> bool:
    """Whole words, in any case: `nc` is in CC-BY-NC-4.0, and not in "licence"."""
    words = f" {' '.join(re.findall(r'[a-z0-9]+', licence.lower()))} "
    asked = " ".join(re.findall(r"[a-z0-9]+", word.lower()))
    return bool(asked) and f" {asked} " in words
