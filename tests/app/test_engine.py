"""Many askers, one model: what arrives together runs together, one's mistake is not another's, bounds hold."""

import threading
import time
from dataclasses import replace
from typing import Any

import pytest
from PIL import Image

from babelcap.app.engine import Engine
from babelcap.app.limits import Limits, Refused, TooSlow
from babelcap.errors import UserError
from babelcap.models import CaptionPipeline, GenerationRequest, GenerationSettings

SHORT = GenerationSettings(num_beams=1, max_new_tokens=8, scores=False)


def wish(language: str = "de", **values: Any) -> GenerationRequest:
    return GenerationRequest(language=language, image=Image.new("RGB", (64, 64), "red"), settings=SHORT, **values)


def test_what_waits_runs_together_and_each_gets_its_own(engine: Engine, pipeline: CaptionPipeline) -> None:
    wishes = [[wish(code)] for code in ("de", "en", "fr", "es", "de", "en")]
    alone = [next(iter(pipeline.generate(one))).text for one in wishes]
    hold = threading.Event()
    calls: list[int] = []
    generate = pipeline.generate

    def slow(requests: Any, **options: Any) -> Any:
        calls.append(len(requests))
        hold.wait(30)
        return generate(requests, **options)

    engine.pipeline = _Slow(pipeline, slow)  # type: ignore[assignment]
    answers = [engine.submit(one) for one in wishes]
    while not calls:
        time.sleep(0.01)
    hold.set()
    assert [answer.result(60)[0].text for answer in answers] == alone
    assert sum(calls) == 6
    assert len(calls) <= 2  # the first alone, then all that came meanwhile


class _Slow:
    def __init__(self, pipeline: CaptionPipeline, generate: Any) -> None:
        self.pipeline, self.generate = pipeline, generate

    def __getattr__(self, name: str) -> Any:
        return getattr(self.pipeline, name)


def test_a_mistake_is_its_own_askers(engine: Engine) -> None:
    with pytest.raises(UserError, match="unknown language"):
        engine.submit([wish("xx")])
    long = replace(wish(), task="translation", source="word " * 3000)  # found only when it is tokenised
    answers = [engine.submit([wish()]), engine.submit([long]), engine.submit([wish("en")])]
    assert answers[0].result(60)[0].text
    with pytest.raises(UserError, match="tokens"):
        answers[1].result(60)
    assert answers[2].result(60)[0].text


def test_too_many_are_refused_and_too_slow_is_told(pipeline: CaptionPipeline) -> None:
    hold = threading.Event()

    def held(requests: Any, **options: Any) -> Any:
        hold.wait(30)
        return pipeline.generate(requests, **options)

    engine = Engine(pipeline, Limits(max_waiting=2, timeout_seconds=0.3))
    engine.pipeline = _Slow(pipeline, held)  # type: ignore[assignment]
    first = engine.submit([wish()])
    while engine.num_waiting:
        time.sleep(0.01)
    waiting = [engine.submit([wish()]) for _ in range(2)]
    with pytest.raises(Refused, match="2 texts are waiting"):
        engine.submit([wish()])
    with pytest.raises(Refused):
        engine.run([wish()])
    time.sleep(0.4)
    hold.set()
    assert first.result(30)[0].text  # it was at work when its time ran out; who waits decides
    for answer in waiting:
        with pytest.raises(TooSlow, match="limit"):
            answer.result(30)
    engine.close()
    with pytest.raises(Refused, match="shutting down"):
        engine.submit([wish()])


def test_limits_are_positive() -> None:
    with pytest.raises(UserError, match="max_waiting"):
        Limits(max_waiting=0)
