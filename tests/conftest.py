"""What all tests share."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

# Some virtual machines announce AMX and then stop a bf16 product with an illegal instruction.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

# The same commit gives the same verdict; `make test-slow` searches with fresh examples.
settings.register_profile("repeatable", derandomize=True)
settings.register_profile("search", max_examples=500)
settings.load_profile(os.environ.get("BABELCAP_HYPOTHESIS", "repeatable"))


@pytest.fixture(scope="session")
def golden_fixtures() -> Path:
    """Tiny models in the published format with their outputs; in the repository, so that every clone has parity."""
    return Path(__file__).parent / "golden"


@pytest.fixture(scope="session")
def shared() -> Path:
    """Real data, which lies beside the repository and is never part of it."""
    folder = Path(__file__).parent.parent.parent / "shared"
    if not folder.is_dir():
        pytest.skip("the shared folder with real data is not beside the repository")
    return folder
