"""OpenAI's own client against `babelcap serve`: texts, streams and errors come as it reads them.

It is no dependency: `pip install openai` beside babelcap, then `pytest -m app tests/app/test_openai_client.py`.
"""

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.pictures import bad_pictures, drawn_picture, encoded
from app.servers import running

openai = pytest.importorskip("openai")
pytestmark = pytest.mark.app


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder: Path = tmp_path_factory.mktemp("serve")
    with (
        running("serve", "--model", "micro", folder=folder) as (address, _),
        openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0) as client,
    ):
        yield client


def message(words: str, content: bytes | None = None, url: str | None = None) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = [{"type": "text", "text": words}]
    if content is not None:
        url = "data:image/png;base64," + base64.b64encode(content).decode()
    if url is not None:
        parts.append({"type": "image_url", "image_url": {"url": url, "detail": "low"}})
    return [{"role": "system", "content": "You are brief."}, {"role": "user", "content": parts}]


PICTURE = encoded(drawn_picture())


def test_a_caption_whole_and_as_a_stream(client: Any) -> None:
    assert [model.id for model in client.models.list()] == ["micro"]
    asked = {"model": "micro", "messages": message("Describe this picture in French.", PICTURE), "max_tokens": 24}
    answer = client.chat.completions.create(**asked)
    text = answer.choices[0].message.content
    assert text.startswith("La photo montre")
    assert answer.choices[0].finish_reason in ("stop", "length")
    assert answer.usage.completion_tokens > 0
    chunks = list(client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == text
    assert chunks[-1].usage == answer.usage
    assert client.chat.completions.create(**asked, n=2).choices[1].index == 1


def test_a_language_by_its_code_and_a_translation(client: Any) -> None:
    asked = {"model": "any name", "max_completion_tokens": 24}
    spanish = client.chat.completions.create(
        **asked, messages=message("What is it?", PICTURE), extra_body={"language": "es"}
    )
    assert spanish.choices[0].message.content.startswith("La imagen muestra")
    german = client.chat.completions.create(
        **asked, messages=[{"role": "user", "content": 'Translate into German: "A red ball."'}]
    )
    assert german.choices[0].message.content


@pytest.mark.parametrize("name", bad_pictures())
def test_bad_pictures_are_its_errors_with_our_words(client: Any, name: str) -> None:
    content, word = bad_pictures()[name]
    with pytest.raises(openai.APIStatusError, match=word if content else "base64|empty|picture") as raised:
        client.chat.completions.create(model="micro", messages=message("In German.", content))
    assert raised.value.status_code in (400, 413)


def test_mistakes_are_its_errors_with_our_words(client: Any) -> None:
    for words, url, kind, word in (
        ("Hello", None, openai.BadRequestError, "no picture"),
        ("In French", "http://127.0.0.1:1/x.png", openai.BadRequestError, "fetches nothing"),
    ):
        with pytest.raises(kind, match=word):
            client.chat.completions.create(model="micro", messages=message(words, url=url))
    with pytest.raises(openai.UnprocessableEntityError, match="messages"):
        client.chat.completions.create(model="micro", messages=[])
    with pytest.raises(openai.APIStatusError, match="at most"):
        client.chat.completions.create(model="micro", messages=message("In German.", PICTURE), max_tokens=100_000)
    with pytest.raises(openai.NotFoundError):
        client.embeddings.create(model="micro", input="a text")
