"""Requests shared among forked processes: the same results in the same order, whatever happens to a process."""

import io
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from babelcap.coverage import Coverage
from babelcap.errors import UserError
from babelcap.languages import LANGUAGES
from babelcap.models import Captioner, CaptionProcessor, GenerationRequest, GenerationSettings
from babelcap.models.generation import core as core_module
from babelcap.models.generation.core import GenerationCore
from babelcap.models.generation.sharing import Answer, NumberedRequest, Part, can_fork, share

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux alone")
SETTINGS = GenerationSettings(num_beams=2, max_new_tokens=5)


@pytest.fixture(scope="module")
def core(captioner: Captioner, processor: CaptionProcessor) -> GenerationCore:
    return GenerationCore(captioner, processor, Coverage())


@pytest.fixture
def requests() -> list[GenerationRequest]:
    pictures = [Image.effect_noise((40, 30), 30 * number + 20).convert("RGB") for number in range(5)]
    return [
        GenerationRequest(language.code, image=image, settings=SETTINGS, key=f"{number}")
        for number, image in enumerate(pictures)
        for language in LANGUAGES
    ]


@pytest.fixture(autouse=True)
def forks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test runner has threads that a fork does not need."""
    monkeypatch.setattr(core_module, "can_fork", lambda: True)


def numbered(number: int) -> Iterator[NumberedRequest]:
    return iter([(place, GenerationRequest("en", key=f"{place}")) for place in range(number)])


def test_shared_requests_have_the_results_that_they_have_alone(
    core: GenerationCore, requests: list[GenerationRequest]
) -> None:
    alone = list(core.generate(requests, num_processes=1))
    shared = list(core.generate(iter(requests), num_processes=2))
    assert [result.request for result in shared] == requests
    assert [result.texts[0].text for result in shared] == [result.texts[0].text for result in alone]
    assert [result.score for result in shared] == [result.score for result in alone]
    assert [result.language_found for result in shared] == [result.language_found for result in alone]
    some = list(core.generate(requests, num_processes=2, in_order=False))
    assert {id(result.request) for result in some} == {id(request) for request in requests}


def test_a_bad_image_is_told_in_its_place_or_stops_all(
    core: GenerationCore, requests: list[GenerationRequest], tmp_path: Path
) -> None:
    bad = tmp_path / "bad.png"
    bad.write_bytes(b"no picture")
    given = [*requests[:7], GenerationRequest("en", image=str(bad), settings=SETTINGS), *requests[7:]]
    told: list[tuple[GenerationRequest, str]] = []
    results = core.generate(
        given, num_processes=2, on_bad_image=lambda request, error: told.append((request, str(error)))
    )
    assert [result.request for result in results] == requests
    assert [request for request, _ in told] == [given[7]]
    assert "bad.png" in told[0][1]
    with pytest.raises(UserError, match=r"bad\.png"):
        list(core.generate(given, num_processes=2))


def test_a_request_that_cannot_be_is_one_line(core: GenerationCore, requests: list[GenerationRequest]) -> None:
    with pytest.raises(UserError, match="tlh"):
        list(core.generate([*requests, GenerationRequest("tlh", image=requests[0].image)], num_processes=2))


def test_what_cannot_be_sent_is_decoded_here(core: GenerationCore, requests: list[GenerationRequest]) -> None:
    """An open file goes through no pipe."""
    buffer = io.BytesIO()
    Image.new("RGB", (40, 30), "red").save(buffer, "png")

    class File(io.BytesIO):
        def __reduce__(self) -> str:
            raise TypeError("cannot pickle this file")

    given = [*requests[:6], GenerationRequest("de", image=File(buffer.getvalue()), settings=SETTINGS)]
    assert [result.request for result in core.generate(given, num_processes=2)] == given


def test_drawn_texts_are_not_shared(core: GenerationCore, requests: list[GenerationRequest]) -> None:
    drawn = GenerationRequest("de", image=requests[0].image, settings=GenerationSettings(temperature=1.0))
    first = list(enumerate([*requests, drawn]))
    assert core._num_processes(4, first[:-1]) == 4
    assert core._num_processes(4, first) == 1
    assert core._num_processes(None, first[:-1]) == 1  # few requests


def test_parts_are_of_nearly_one_size_and_keep_an_image_together() -> None:
    parts = [part for part, _ in share(numbered(23), len, 2, 100)]
    assert sorted(len(part) for part in parts) == [5, 6, 6, 6]
    image = Image.new("RGB", (4, 4))
    some = iter([(place, GenerationRequest("en", image=image)) for place in range(9)])
    assert [len(part) for part, _ in share(some, len, 2, 100)] == [9]


def test_the_part_of_a_process_that_dies_is_decoded_by_the_parent() -> None:
    parent = os.getpid()

    def decode(part: Part) -> list[int]:
        if os.getpid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)
        return [number for number, _ in part]

    found = [number for _, answer in share(numbered(40), decode, 3, 4) for number in answer.get()]
    assert sorted(found) == list(range(40))


def test_an_error_comes_back_as_it_is_and_one_that_cannot_in_words() -> None:
    class Unsendable(Exception):
        def __reduce__(self) -> str:
            raise TypeError

    def fails(part: Part) -> None:
        raise UserError("wrong") if part[0][0] == 0 else Unsendable("odd")

    answers: list[Answer[None]] = [answer for _, answer in share(numbered(2), fails, 1, 1)]
    assert [(type(answer.error), str(answer.error)) for answer in answers] == [
        (UserError, "wrong"),
        (RuntimeError, "Unsendable: odd"),
    ]


def test_who_stops_early_leaves_no_process() -> None:
    found = share(numbered(100), lambda part: os.getpid(), 2, 4)
    processes = {next(found)[1].get() for _ in range(4)}
    found.close()
    for process in processes:
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)


def test_no_fork_beside_another_thread() -> None:
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    try:
        assert not can_fork()
    finally:
        stop.set()
        thread.join()


def test_after_threads_were_at_work_and_from_a_script() -> None:
    """As a user calls it: torch's threads ran before the fork, and nothing guards the script's main part."""
    script = """
import torch, babelcap
from pathlib import Path
from PIL import Image
torch.set_num_threads(2)
torch.randn(800, 800) @ torch.randn(800, 800)
captioner = babelcap.load(Path(babelcap.__file__).parent / "models" / "shipped" / "micro")
pictures = [Image.effect_noise((64, 64), 20 + number).convert("RGB") for number in range(4)]
alone, shared = (captioner.caption(pictures, ["en", "fr"], max_new_tokens=6, num_processes=n) for n in (1, 2))
assert [one.text for one in alone] == [one.text for one in shared]
print(len(shared))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == "8\n", done.stderr
    assert done.stderr == ""
