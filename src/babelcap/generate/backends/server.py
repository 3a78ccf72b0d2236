"""Captions from any server that speaks OpenAI's chat completions (vLLM, SGLang, ...): many requests in flight.

Busy (429), failing (5xx), slow and malformed answers are asked for again, after the time that the server names, else
ever longer; a refused request (400) is the data's fault: a drop. A server that is not there is waited for, and then the
stage stops without a single drop. Answers are not reproducible, so each is written to a journal, synced to disk, the
moment it comes: none is lost, and none is asked for twice.
"""

import asyncio
import base64
import hashlib
import io
import json
import os
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from babelcap.errors import UserError
from babelcap.generate.backends.captioners import REFUSAL, Answer, Question
from babelcap.jobs.stages import Unavailable
from babelcap.storage import read_json_lines

REFUSED = {400, 413, 415, 422}
FATAL = {401: "its key is refused (set OPENAI_API_KEY)", 403: "access is refused", 404: "it has no such model or path"}
MAX_ANSWER_BYTES = 4 * 2**20
FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 0.5, 60.0


class ServerTrouble(Exception):
    """The machine's fault, not the data's: the shard is tried again later."""


class ServerUnreachable(ServerTrouble, Unavailable):
    """Nobody answers at all: no shard can be made."""


class ChatServer:
    def __init__(
        self,
        model: str,
        urls: Sequence[str] = ("http://localhost:8000/v1",),
        max_in_flight: int = 32,
        timeout_seconds: float = 120.0,
        patience_seconds: float = 600.0,
        max_new_tokens: int = 128,
        journal: str | None = None,
    ) -> None:
        if not urls:
            raise UserError("caption.urls is empty; name at least one, such as http://localhost:8000/v1")
        self.model, self.urls = model, [url.rstrip("/") for url in urls]
        self.max_in_flight, self.timeout_seconds = max_in_flight, timeout_seconds
        self.patience_seconds, self.max_new_tokens = patience_seconds, max_new_tokens
        self.journal = Journal(Path(journal)) if journal else None

    def answer(self, questions: Sequence[Question]) -> list[Answer]:
        return asyncio.run(self._answer_all(questions))

    async def _answer_all(self, questions: Sequence[Question]) -> list[Answer]:
        import httpx2

        known = self.journal.read() if self.journal is not None else {}
        gate = asyncio.Semaphore(self.max_in_flight)
        headers = {"Authorization": f"Bearer {key}"} if (key := os.environ.get("OPENAI_API_KEY")) else {}
        async with httpx2.AsyncClient(timeout=self.timeout_seconds, headers=headers) as client:

            async def one(number: int, question: Question) -> Answer:
                body = self._body(question)
                digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
                if digest in known:
                    return known[digest]
                async with gate:
                    found = await self._ask(client, number, body)
                if self.journal is not None:
                    self.journal.add(digest, found)
                return found

            tasks = [asyncio.create_task(one(number, question)) for number, question in enumerate(questions)]
            try:
                return await asyncio.gather(*tasks)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    def _body(self, question: Question) -> dict[str, Any]:
        buffer = io.BytesIO()
        question.image.convert("RGB").save(buffer, "JPEG", quality=90)
        picture = f"data:image/jpeg;base64,{base64.b64encode(buffer.getvalue()).decode()}"
        content = [{"type": "image_url", "image_url": {"url": picture}}, {"type": "text", "text": question.prompt}]
        body: dict[str, Any] = {
            "model": self.model,
            "messages": [{"role": "user", "content": content}],
            "max_tokens": self.max_new_tokens,
            "temperature": 0,
        }
        if question.answer_start:  # as vLLM and SGLang take it
            body["messages"].append({"role": "assistant", "content": question.answer_start})
            body |= {"add_generation_prompt": False, "continue_final_message": True}
        return body

    async def _ask(self, client: Any, number: int, body: dict[str, Any]) -> Answer:
        import httpx2

        waited, attempt, problem, is_there = 0.0, 0, "", False
        while waited <= self.patience_seconds:
            url = self.urls[(number + attempt) % len(self.urls)]
            wait = min(LONGEST_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2**attempt) * (0.5 + random.random() / 2)
            try:
                async with client.stream("POST", f"{url}/chat/completions", json=body) as response:
                    content = await _read_bounded(response)
                is_there = True
                if response.status_code in REFUSED:
                    return Answer("", drop=REFUSAL)
                if response.status_code in FATAL:
                    status = response.status_code
                    raise UserError(f"caption.urls: {url} answered {status}: {FATAL[status]}")
                if response.status_code == 200 and len(content) <= MAX_ANSWER_BYTES:
                    answer = parse_answer(content)
                    if answer is not None:
                        return answer
                    problem = "an answer that is no chat completion"
                else:
                    problem = f"status {response.status_code}"
                    wait = max(wait, _retry_after(response.headers.get("retry-after")))
            except (httpx2.TransportError, httpx2.DecodingError) as error:
                is_there = is_there or not isinstance(error, httpx2.ConnectError)
                problem = f"{type(error).__name__}: {error}".rstrip(": ")
            attempt += 1
            waited += wait
            await asyncio.sleep(wait)
        kind = ServerTrouble if is_there else ServerUnreachable
        raise kind(f"{', '.join(self.urls)}: no answer in {self.patience_seconds:g} s ({problem})")


async def _read_bounded(response: Any) -> bytes:
    """No more than is looked at: an answer may be without end, or unpack to what no memory holds."""
    content = b""
    async for piece in response.aiter_bytes(MAX_ANSWER_BYTES // 64):
        content += piece
        if len(content) > MAX_ANSWER_BYTES:
            break
    return content


def parse_answer(content: bytes) -> Answer | None:
    try:
        choice = json.loads(content)["choices"][0]
        text = choice["message"]["content"]
    except (ValueError, KeyError, IndexError, TypeError, RecursionError):
        return None
    if not isinstance(text, str):
        return None
    whole = text.encode("utf-8", "replace").decode()  # JSON can spell half of a character, which cannot be written
    return Answer(whole.strip(), is_cut=choice.get("finish_reason") == "length")


def _retry_after(value: str | None) -> float:
    try:
        return min(LONGEST_WAIT_SECONDS, max(0.0, float(value or 0)))
    except ValueError:
        return FIRST_WAIT_SECONDS  # a date: soon


class Journal:
    """One line an answer, synced before it counts. A line that a kill cut short is asked for again."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> dict[str, Answer]:
        if not self.path.is_file():
            return {}
        lines = [line.value for line in read_json_lines(self.path) if line.error is None]
        return {
            line["digest"]: Answer(line["text"], line["is_cut"], line["drop"])
            for line in lines
            if isinstance(line, dict)
            and all(isinstance(line.get(name), str) for name in ("digest", "text"))
            and isinstance(line.get("drop", 0), str | None)
            and isinstance(line.get("is_cut"), bool)
        }

    def add(self, digest: str, answer: Answer) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps({"digest": digest, **answer._asdict()}, ensure_ascii=False)
        with self.path.open("ab") as file:
            # A line before that a kill cut short must not swallow this one.
            file.write(f"\n{line}\n".encode())
            file.flush()
            os.fsync(file.fileno())
