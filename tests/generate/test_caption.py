"""Captions by a tiny LLaVA-NeXT and by servers that are slow, busy, broken, talk nonsense or are not there."""

import io
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    CLIPVisionConfig,
    LlamaConfig,
    LlavaNextConfig,
    LlavaNextForConditionalGeneration,
    LlavaNextProcessor,
    PreTrainedTokenizerFast,
)
from transformers.models.llava_next.image_processing_pil_llava_next import LlavaNextImageProcessorPil

from babelcap.errors import UserError
from babelcap.generate.backends import server as servers
from babelcap.generate.backends.captioners import Answer, Question, VisionLanguageModel
from babelcap.generate.backends.server import ChatServer, ServerTrouble, ServerUnreachable
from babelcap.generate.caption import CaptionConfig, caption_shard, read_alt_texts, sentences_of

WriteTar = Callable[..., Path]
COLOURS = {"red": (220, 20, 20), "green": (20, 200, 20), "blue": (20, 20, 220), "white": (250, 250, 250)}
WORDS = ["<unk>", "<s>", "</s>", "<image>", *COLOURS, "a", "square", ".", "describe", "picture", "on", "nothing"]


def png(colour: str) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (28, 28), COLOURS[colour]).save(buffer, "PNG")
    return buffer.getvalue()


@pytest.fixture(scope="module")
def llava(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Trained until it names the colours."""
    folder = tmp_path_factory.mktemp("llava")
    torch.manual_seed(0)
    backend = Tokenizer(models.WordLevel({word: n for n, word in enumerate(WORDS)}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, unk_token="<unk>", bos_token="<s>", eos_token="</s>", pad_token="<unk>",
        extra_special_tokens={"image_token": "<image>"},
    )  # fmt: skip
    images = LlavaNextImageProcessorPil(
        size={"shortest_edge": 28}, crop_size={"height": 28, "width": 28}, image_grid_pinpoints=[[28, 28]]
    )
    template = (
        "{% for m in messages %}{% for c in m['content'] %}{% if c['type'] == 'image' %}<image> {% else %}"
        "{{ c['text'] }}{% endif %}{% endfor %}{% endfor %}"
    )
    processor = LlavaNextProcessor(
        images, tokenizer, patch_size=14, vision_feature_select_strategy="default", image_token="<image>",
        chat_template=template, num_additional_image_tokens=1,
    )  # fmt: skip
    side = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = LlavaNextConfig(
        vision_config=CLIPVisionConfig(**side, image_size=28, patch_size=14),
        text_config=LlamaConfig(
            **side, vocab_size=len(WORDS), num_key_value_heads=2, pad_token_id=0, bos_token_id=1, eos_token_id=2
        ),
        image_token_index=3, image_grid_pinpoints=[[28, 28]], vision_feature_select_strategy="default",
        vision_feature_layer=-1,
    )  # fmt: skip
    model = LlavaNextForConditionalGeneration(config)
    pictures = [Image.new("RGB", (28, 28), value) for value in COLOURS.values()]
    texts = [f"<image> describe picture a {colour} square . </s>" for colour in COLOURS]
    batch = processor(images=pictures, text=texts, padding=True, return_tensors="pt")
    labels = batch["input_ids"].clone()
    labels[:, :-5] = -100
    optimiser = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(60):
        optimiser.zero_grad()
        model(**batch, labels=labels).loss.backward()
        optimiser.step()
    model.generation_config.eos_token_id = 2
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder


def test_a_tiny_llava_names_what_it_sees(llava: Path, tmp_path: Path, write_tar: WriteTar) -> None:
    files = {f"{n}.png": png(colour) for n, colour in enumerate(["red", "blue", "green", "white", "red"])}
    tar = write_tar(tmp_path / "00000.tar", files | {"9.png": b"broken"})
    config = CaptionConfig(
        model=str(llava), prompt="describe picture", batch_size=2, max_new_tokens=8, check_language=False
    )
    output = caption_shard({"tar": tar}, config.model_dump(mode="json") | {"output": str(tmp_path / "0.parquet")})
    found = dict(zip(output.table["key"].to_pylist(), output.table["sentences"].to_pylist(), strict=True))
    assert (output.num_in, output.num_out, output.drops) == (6, 5, {"not an image": 1})
    assert found["0"] == found["4"] == ["a red square ."]
    assert found["1"] == ["a blue square ."]
    assert len({str(caption) for caption in found.values()}) == 4
    assert not any("<unk>" in str(caption) for caption in found.values())


def test_padding_on_the_left_changes_nothing(llava: Path) -> None:
    captioner = VisionLanguageModel(str(llava), max_new_tokens=8)
    questions = [
        Question(str(n), Image.new("RGB", (28, 28), colour), "describe picture" if n % 2 else "picture")
        for n, colour in enumerate(COLOURS.values())
    ]
    assert captioner.answer(questions) == [captioner.answer([question])[0] for question in questions]


def test_a_model_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"caption\.model: .*cannot be loaded"):
        VisionLanguageModel(str(tmp_path / "absent"))


def test_sentences_of_answers() -> None:
    config = CaptionConfig(max_sentences=2)
    whole = "A dog runs across the street. It is wet and it is small. It barks at a car."
    assert sentences_of(Answer(whole), config)[0] == ["A dog runs across the street.", "It is wet and it is small."]
    assert sentences_of(Answer("A dog runs across the street. It is w", is_cut=True), config)[0] == [
        "A dog runs across the street."
    ]
    assert sentences_of(Answer("A dog runs acro", is_cut=True), config)[1] == "cut before its first sentence ended"
    assert sentences_of(Answer(" "), config)[1] == "empty caption"
    assert sentences_of(Answer("Ein Hund läuft über die nasse Straße."), config)[1] == "not English"
    assert sentences_of(Answer("", drop="refused by the server"), config)[1] == "refused by the server"


def test_alt_texts_from_members(tmp_path: Path, write_tar: WriteTar) -> None:
    files = {"1.jpg": b"", "1.json": b'{"caption": "a  cat", "n": 1}', "2.json": b"[[", "3.json": b'{"caption": 3}',
             "4.txt": b"a dog"}  # fmt: skip
    tar = write_tar(tmp_path / "a.tar", files)
    assert read_alt_texts(tar, "json:caption") == {"1": "a cat"}
    assert read_alt_texts(tar, "txt") == {"4": "a dog"}
    assert read_alt_texts(tar, None) == {}


Reply = tuple[int, dict[str, str], bytes]


@pytest.fixture
def serve() -> Iterator[Callable[[Callable[[int, dict[str, Any]], Reply | None]], tuple[str, Counter[str]]]]:
    """Starts a server whose answers a function gives: (number of the request, its body) -> reply; None hangs up."""
    running: list[ThreadingHTTPServer] = []

    def start(reply: Callable[[int, dict[str, Any]], Reply | None]) -> tuple[str, Counter[str]]:
        seen: Counter[str] = Counter()
        lock = threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                prompt = body["messages"][0]["content"][1]["text"]
                with lock:
                    number = seen.total()
                    seen[prompt] += 1
                answer = reply(number, body)
                if answer is None:
                    return
                status, headers, content = answer
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        running.append(server)
        return f"http://127.0.0.1:{server.server_port}/v1", seen

    yield start
    for server in running:
        server.shutdown()
        server.server_close()


def completion(text: str, reason: str = "stop") -> Reply:
    body = {"choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": reason}]}
    return 200, {}, json.dumps(body).encode()


def questions(number: int) -> list[Question]:
    return [Question(str(n), Image.new("RGB", (8, 8)), f"question {n}") for n in range(number)]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "FIRST_WAIT_SECONDS", 0.01)
    monkeypatch.setattr(servers, "LONGEST_WAIT_SECONDS", 0.05)


def test_trouble_is_asked_again_and_refusals_are_drops(serve: Any, tmp_path: Path) -> None:
    def reply(number: int, body: dict[str, Any]) -> Reply | None:
        prompt = body["messages"][0]["content"][1]["text"]
        if prompt == "question 3":
            return 400, {}, b"{}"
        troubles: list[Reply | None] = [(429, {"Retry-After": "0.02"}, b""), (503, {}, b""), (200, {}, b"nonsense"),
                                        (200, {}, b'{"choices": []}'), None]  # fmt: skip
        if number < 10:
            return troubles[number % 5]
        return completion(f"answer to {prompt}", "length" if prompt == "question 1" else "stop")

    url, seen = serve(reply)
    captioner = ChatServer("m", [url, url], max_in_flight=3, timeout_seconds=5, journal=str(tmp_path / "j"))
    answers = captioner.answer(questions(6))
    assert [answer.text for answer in answers] == [f"answer to question {n}" if n != 3 else "" for n in range(6)]
    assert answers[3].drop == "refused by the server"
    assert [answer.is_cut for answer in answers] == [False, True, False, False, False, False]
    asked = seen.total()
    assert captioner.answer(questions(6)) == answers
    assert seen.total() == asked  # all from the journal


def test_a_cut_journal_loses_only_its_last_line(serve: Any, tmp_path: Path) -> None:
    url, seen = serve(lambda number, body: completion("text."))
    journal = tmp_path / "j"
    ChatServer("m", [url], journal=str(journal)).answer(questions(4))
    journal.write_bytes(journal.read_bytes()[:-20])
    ChatServer("m", [url], journal=str(journal)).answer(questions(4))
    assert seen.total() == 5
    ChatServer("m", [url], journal=str(journal)).answer(questions(4))
    assert seen.total() == 5


def test_a_server_that_is_not_there_stops_without_drops(serve: Any, tmp_path: Path) -> None:
    captioner = ChatServer("m", ["http://127.0.0.1:9/v1"], patience_seconds=0.05, journal=str(tmp_path / "j"))
    with pytest.raises(ServerUnreachable, match=r"no answer in 0\.05 s"):
        captioner.answer(questions(2))
    assert not (tmp_path / "j").exists()
    url, _ = serve(lambda number, body: (401, {}, b""))
    with pytest.raises(UserError, match="answered 401: its key is refused"):
        ChatServer("m", [url]).answer(questions(1))


def test_a_server_that_dies_half_way_is_not_paid_twice(serve: Any, tmp_path: Path) -> None:
    dead = threading.Event()

    def reply(number: int, body: dict[str, Any]) -> Reply | None:
        if number >= 5 and not dead.is_set():
            return 500, {}, b""
        return completion("text.")

    url, seen = serve(reply)
    settings = {"max_in_flight": 1, "patience_seconds": 0.05, "journal": str(tmp_path / "j")}
    with pytest.raises(ServerTrouble, match="status 500") as caught:
        ChatServer("m", [url], **settings).answer(questions(8))
    assert not isinstance(caught.value, ServerUnreachable)  # it is there: other shards may do
    paid = {line.split('"digest": "')[1][:64] for line in (tmp_path / "j").read_text().split("\n") if line}
    assert len(paid) == 5
    dead.set()
    before = seen.copy()
    assert len(ChatServer("m", [url], **settings).answer(questions(8))) == 8
    again = seen - before
    assert sum(again.values()) == 3
