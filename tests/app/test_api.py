"""The HTTP API in one process: right answers, refusals in words, OpenAI's dialect."""

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("httpx")
from fastapi.testclient import TestClient

from app.pictures import bad_pictures, drawn_picture, encoded, good_pictures
from babelcap.app.engine import Engine
from babelcap.app.pictures import shown_picture
from babelcap.app.serve.api import ServeOptions, make_api
from babelcap.app.serve.gate import Gate

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Starlette's own client
PICTURE = encoded(drawn_picture())
ADDRESS = "data:image/png;base64," + base64.b64encode(PICTURE).decode()


@pytest.fixture
def client(engine: Engine) -> Iterator[TestClient]:
    app = Gate(make_api(engine, ServeOptions("micro")), engine.limits, ("testserver",))
    with TestClient(app, raise_server_exceptions=False) as client:
        yield client


def message(answer: Any) -> str:
    return str(answer.json()["error"]["message"])


def test_captions_and_translations(client: TestClient, engine: Engine) -> None:
    asked = {"image": ADDRESS, "languages": ["de", "fr"], "max_new_tokens": 16, "num_texts": 2, "tokens": True}
    answer = client.post("/caption", json=asked).json()
    assert [result["language"] for result in answer["results"]] == ["de", "fr"]
    first, second = answer["results"]
    assert first["prefix"] == ""  # trained on
    assert second["text"].startswith(second["prefix"] or "-")  # never captioned in: unlocked
    assert len(first["alternatives"]) == 1
    assert 0 < first["tokens"][0]["probability"] <= 1
    expected = engine.pipeline.caption([PICTURE], "de", max_new_tokens=16, num_return_sequences=2)[0].text
    assert first["text"] == expected
    form = client.post("/caption/upload", files={"image": PICTURE}, data={"language": "de"})
    assert form.status_code == 200
    text = {"text": "A red ball.", "languages": ["de"], "max_new_tokens": 16}
    plain, seen = (client.post("/translate", json=text | more) for more in ({}, {"image": ADDRESS}))
    assert plain.status_code == seen.status_code == 200
    upload = client.post("/translate/upload", data={"text": "A red ball.", "language": "de"})
    assert upload.json()["results"][0]["language"] == "de"
    health = client.get("/health").json()
    assert health["status"] == "ok"
    assert health["num_answered"] >= 6


def test_refusals_are_in_words(client: TestClient) -> None:
    good: dict[str, Any] = {"image": ADDRESS, "languages": ["de"]}
    for changed, code, word in (
        ({"languages": ["xx"]}, 400, "unknown language"),
        ({"languages": []}, 422, "languages"),
        ({"image": "http://127.0.0.1/x.png"}, 400, "fetches nothing"),
        ({"image": "!"}, 400, "base64"),
        ({"style": "wild"}, 422, "style"),
        ({"max_new_tokens": 10_000}, 413, "at most"),
        ({"num_beams": 500}, 413, "at most"),
        ({"unknown": 1}, 422, "unknown"),
    ):
        answer = client.post("/caption", json=good | changed)
        assert answer.status_code == code, answer.text
        assert word in message(answer)
    assert client.post("/caption", content=b"{", headers={"content-type": "application/json"}).status_code == 400
    assert client.get("/nothing").status_code == 404
    assert "error" in client.put("/caption").json()
    assert client.get("/health", headers={"host": "elsewhere.example"}).status_code == 403
    huge = client.post("/caption", json=good | {"image": "A" * 3 * 2**20})
    assert huge.status_code == 413
    assert "1 MiB" in message(huge)
    chunks = (b"A" * 2**18 for _ in range(20))  # without a length that is known before
    assert client.post("/caption", content=chunks, headers={"content-type": "application/json"}).status_code == 413
    long = client.post("/translate", json={"text": "x" * 5000, "languages": ["de"]})
    assert long.status_code == 413
    assert client.post("/translate", json={"text": " ", "languages": ["de"]}).status_code == 400


@pytest.mark.parametrize("name", bad_pictures())
def test_bad_uploads(client: TestClient, name: str) -> None:
    content, word = bad_pictures()[name]
    answer = client.post("/caption/upload", files={"image": (name, content)}, data={"language": "de"})
    assert answer.status_code in (400, 413)
    assert word in message(answer)


@pytest.mark.parametrize("name", good_pictures())
def test_unusual_uploads(client: TestClient, engine: Engine, name: str) -> None:
    """The same caption as of a plain picture with the same content; of a JPEG, which is decoded at the scale that is
    needed, nearly the same picture, and so some caption."""
    content = good_pictures()[name]
    plain = encoded(shown_picture(content, engine.limits))
    texts = [
        client.post("/caption/upload", files={"image": one}, data={"language": "de"}).json()["results"][0]["text"]
        for one in (content, plain)
    ]
    assert all(texts)
    assert texts[0] == texts[1] or name.endswith(".jpg")


def chat(client: TestClient, words: str, address: str | None = ADDRESS, **more: Any) -> Any:
    parts: list[dict[str, Any]] = [{"type": "text", "text": words}]
    if address is not None:
        parts.append({"type": "image_url", "image_url": {"url": address}})
    asked = {"model": "micro", "max_tokens": 16, "messages": [{"role": "user", "content": parts}], **more}
    return client.post("/v1/chat/completions", json=asked)


def test_the_dialect_of_openais_clients(client: TestClient, engine: Engine) -> None:
    answer = chat(client, "Describe this picture in French.").json()
    expected = engine.pipeline.caption([PICTURE], "fr", max_new_tokens=16)[0].text
    assert answer["choices"][0]["message"] == {"role": "assistant", "content": expected}
    assert answer["object"] == "chat.completion"
    assert answer["usage"]["completion_tokens"] > 0
    assert chat(client, "What is it?", language="fr").json()["choices"][0]["message"]["content"] == expected
    wish = 'Translate from English into German: "The French ball."'
    translated = chat(client, wish, None).json()["choices"][0]["message"]["content"]
    assert translated == engine.pipeline.translate(None, "The French ball.", "de", max_new_tokens=16)[0].text
    lines = chat(client, "In French", stream=True).text.strip().split("\n\n")
    assert lines[-1] == "data: [DONE]"
    assert json.loads(lines[0].removeprefix("data: "))["choices"][0]["delta"]["content"] == expected
    counted = chat(client, "In French", stream=True, stream_options={"include_usage": True}).text.split("\n\n")
    assert json.loads(counted[-3].removeprefix("data: "))["usage"] == answer["usage"]
    assert len(chat(client, "In French", n=2).json()["choices"]) == 2
    drawn = chat(client, "In French", temperature=1.0, seed=3).json()["choices"][0]["message"]["content"]
    assert drawn == chat(client, "In French", temperature=1.0, seed=3).json()["choices"][0]["message"]["content"]
    assert client.get("/v1/models").json()["data"][0]["id"] == "micro"
    for words, address, word in (
        ("Hello", None, "no picture"),
        ("Translate this", None, "no text"),
        ("In French", "http://127.0.0.1:1/x.png", "fetches nothing"),
    ):
        refused = chat(client, words, address)
        assert refused.status_code == 400
        assert word in message(refused)


def test_the_page_of_the_api_loads_nothing_from_elsewhere(client: TestClient) -> None:
    page = client.get("/docs")
    assert "/v1/chat/completions" in page.text
    assert "http://" not in page.text.replace("http://127.0.0.1", "")
    assert "https://" not in page.text
    assert "default-src 'self'" in page.headers["content-security-policy"]
    assert client.get("/openapi.json").json()["info"]["title"] == "babelcap"
