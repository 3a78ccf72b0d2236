"""Requests shared among forked processes: the same results in the same order, whatever happens to a process."""

import io
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from PIL import Image

from babelcap.coverage import Coverage
from babelcap.errors import UserError
from babelcap.languages import LANGUAGES
from babelcap.models import Captioner, CaptionProcessor, GenerationRequest, GenerationSettings
from babelcap.models.generation import sharing
from babelcap.models.generation.core import GenerationCore
from babelcap.models.generation.sharing import Answer, NumberedRequest, Part, obstacle_to_fork, share

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux alone")
SETTINGS = GenerationSettings(num_beams=2, max_new_tokens=5)
ALONE = "4 processes were asked for, but this one works alone: "


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
    monkeypatch.setattr(sharing, "obstacle_to_fork", lambda: None)


def numbered(number: int) -> Iterator[NumberedRequest]:
    return iter([(place, GenerationRequest("en", key=f"{place}")) for place in range(number)])


def test_shared_requests_have_the_results_that_they_have_alone(
    core: GenerationCore, requests: list[GenerationRequest]
) -> None:
    alone = list(core.generate(requests, num_processes=1))
    shared = list(core.generate(iter(requests), num_processes=2))
    assert [result.request for result in shared] == requests
    assert [result.texts[0].text for result in shared] == [result.texts[0].text for result in alone]
    totals = [[result.score.total for result in results if result.score] for results in (shared, alone)]
    assert totals[0] == pytest.approx(totals[1], abs=2e-4)  # rounded, of batches of another size: the last digit
    assert len(totals[0]) == len(requests)
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
    first, told = list(enumerate([*requests, drawn])), list[str]()
    assert core._num_processes(4, first[:-1], told.append) == 4
    assert core._num_processes(None, first[:-1], told.append) == 1  # few requests
    assert told == []
    assert core._num_processes(4, first, told.append) == 1
    assert told == [f"{ALONE}sampled texts depend on those that are drawn beside them"]


def test_who_asked_for_more_processes_hears_why_there_is_one(
    core: GenerationCore, requests: list[GenerationRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharing, "obstacle_to_fork", lambda: "there is no room")
    monkeypatch.setattr("babelcap.models.generation.core.MIN_SHARED", 2)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    told: list[str] = []
    for asked, given in ((None, requests), (1, requests), (4, requests[:1])):  # not asked for, or nothing to share
        assert len(list(core.generate(given, num_processes=asked, on_note=told.append))) == len(given)
    assert told == []
    assert len(list(core.generate(requests[:2], num_processes=4, on_note=told.append))) == 2
    assert told == [f"{ALONE}there is no room"]
    with pytest.warns(UserWarning, match=f"^{ALONE}there is no room$"):  # in Python, where nobody listens
        list(core.generate(requests[:2], num_processes=4))


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
        assert "threads" in (obstacle_to_fork() or "")
    finally:
        stop.set()
        thread.join()


def test_what_else_stands_against_a_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "active_count", lambda: 1)
    assert obstacle_to_fork() is None
    with monkeypatch.context() as patch:
        patch.setattr(torch.cuda, "is_initialized", lambda: True)
        assert "graphics card" in (obstacle_to_fork() or "")
    with monkeypatch.context() as patch:
        patch.setattr(multiprocessing.current_process(), "_config", {"daemon": True})
        assert "worker" in (obstacle_to_fork() or "")
    monkeypatch.setattr(sys, "platform", "darwin")
    assert "Linux" in (obstacle_to_fork() or "")


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
