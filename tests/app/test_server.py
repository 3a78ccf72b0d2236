"""Servers in processes of their own: no file that was not given, every refusal in words, two hundred at once."""

import http.client
import json
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import psutil
import pytest

from app.pictures import SVG, bad_pictures, drawn_picture, encoded
from app.servers import running

pytestmark = pytest.mark.app
SECRET = "a secret that no page may show"
NUM_AT_ONCE = 200


@pytest.fixture(scope="module")
def app_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    pytest.importorskip("gradio")
    folder = tmp_path_factory.mktemp("secrets")
    (folder / "secret.txt").write_text(SECRET, encoding="utf-8")
    with running("app", "--model", "micro", folder=folder, is_attacked=True) as (address, _):
        yield address, folder


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Any]]:
    with running("serve", "--model", "micro", folder=tmp_path_factory.mktemp("serve")) as (address, process):
        yield address, process


def asked(address: str, path: str, **options: Any) -> tuple[int, bytes, Any]:
    """As it is written: no client tidies the path up before it is sent."""
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=120)
    method = options.pop("method", "POST" if "body" in options else "GET")
    connection.request(method, path, **options)
    answer = connection.getresponse()
    found = answer.status, answer.read(), answer.headers
    connection.close()
    return found


def test_no_file_that_was_not_given_can_be_read(app_address: tuple[str, Path]) -> None:
    address, folder = app_address
    secret = str(folder / "secret.txt")
    for route in (
        "gradio_api/file=",
        "file=",
        "gradio_api/file/",
        "gradio_api/proxy=",
        "static/",
        "assets/",
        "svelte/",
    ):
        for target in (
            secret, quote(secret, safe=""), "secret.txt", f"../../../..{secret}", f"..%2f..%2f..%2f..{quote(secret)}",
            f"file://{secret}", "/etc/passwd", "/proc/self/environ", f"/{secret}", f"{secret}%00.png",
        ):  # fmt: skip
            code, body, _ = asked(address, f"/{route}{target}")
            assert SECRET.encode() not in body
            assert b"root:" not in body
            assert code >= 400, (route, target)


def join(address: str, number: int, data: list[Any]) -> str:
    """Runs a function of the page as a browser would; all that it answers."""
    body = json.dumps({"fn_index": number, "data": data, "session_hash": "test", "trigger_id": None})
    code, answer, _ = asked(
        address, "/gradio_api/queue/join", body=body.encode(), headers={"content-type": "application/json"}
    )
    if code != 200:
        return answer.decode()
    url = f"{address}/gradio_api/queue/data?session_hash=test"
    lines: list[str] = []
    with urllib.request.urlopen(url, timeout=60) as stream:
        for line in stream:
            lines.append(line.decode())
            if "process_completed" in lines[-1] or "close_stream" in lines[-1]:
                break
    return "".join(lines)


def test_a_path_in_the_place_of_an_upload_is_refused(app_address: tuple[str, Path]) -> None:
    address, folder = app_address
    config = json.loads(asked(address, "/config")[1])
    picture = next(part["id"] for part in config["components"] if part["props"].get("elem_id") == "caption-picture")
    caption = next(one["id"] for one in config["dependencies"] if picture in one["inputs"] and len(one["inputs"]) == 4)
    table = next(part["id"] for part in config["components"] if part["props"].get("elem_id") == "law-table")
    predict = next(one["id"] for one in config["dependencies"] if table in one["inputs"] and len(one["inputs"]) == 9)
    for path in (str(folder / "secret.txt"), "/etc/passwd", "http://127.0.0.1:1/x.png"):
        file = {"path": path, "meta": {"_type": "gradio.FileData"}}
        told = join(address, caption, [file, ["de"], ["plain"], "short"])
        told += join(address, predict, ["own", "ps", "raw", file, "", 6, 4, 3, "UC"])
        assert SECRET not in told
        assert "root:" not in told
        assert '"success":true' not in told.split("process_completed")[1][:400].replace(" ", "") or "No law" in told


def test_fifty_uploads_at_once_and_what_is_given_back(app_address: tuple[str, Path]) -> None:
    address, _ = app_address
    files = [("script.svg", SVG), *((name, content) for name, (content, _) in bad_pictures().items())]
    files += [(f"{number}.png", encoded(drawn_picture())) for number in range(44)]

    def send(file: tuple[str, bytes]) -> tuple[int, str]:
        line = b"--line\r\n"
        head = f'Content-Disposition: form-data; name="files"; filename="{file[0]}"\r\n\r\n'.encode()
        body = line + head + file[1] + b"\r\n--line--\r\n"
        code, answer, _ = asked(
            address, "/gradio_api/upload", body=body, headers={"content-type": "multipart/form-data; boundary=line"}
        )
        return code, json.loads(answer)[0] if code == 200 else ""

    with ThreadPoolExecutor(50) as pool:
        answers = list(pool.map(send, files))
    assert len(answers) == 50
    assert {code for code, _ in answers} == {200}
    code, _, headers = asked(address, f"/gradio_api/file={answers[0][1]}")
    assert code == 200
    assert "attachment" in headers["content-disposition"]  # a script in a picture is not run from here
    assert asked(address, "/")[0] == 200


def test_the_api_keeps_to_its_own_schema(served: tuple[str, Any]) -> None:
    schemathesis = pytest.importorskip("schemathesis")
    import hypothesis
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi.checks import (
        content_type_conformance,
        response_schema_conformance,
        status_code_conformance,
    )

    schema = schemathesis.openapi.from_url(f"{served[0]}/openapi.json")
    checks = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
    num_tried: Counter[str] = Counter()

    def try_operation(operation: Any) -> None:
        @hypothesis.settings(
            max_examples=15, deadline=None, derandomize=True, database=None,
            suppress_health_check=list(hypothesis.HealthCheck),
        )  # fmt: skip
        @hypothesis.given(case=operation.as_strategy())
        def try_it(case: Any) -> None:
            num_tried[operation.label] += 1
            case.call_and_validate(checks=checks)

        try_it()

    for result in schema.get_all_operations():
        try_operation(result.ok())
    assert {"POST /caption", "POST /translate", "POST /v1/chat/completions"} <= set(num_tried)


def test_two_hundred_at_once(served: tuple[str, Any]) -> None:
    address, process = served
    content = encoded(drawn_picture((640, 480)), "JPEG")
    before = psutil.Process(process.pid).memory_info().rss
    most = before

    def caption(number: int) -> int:
        line = b"--line\r\n"
        language = (b"de", b"fr", b"zh", b"en")[number % 4]
        body = line + b'Content-Disposition: form-data; name="image"; filename="a.jpg"\r\n\r\n' + content + b"\r\n"
        body += line + b'Content-Disposition: form-data; name="language"\r\n\r\n' + language + b"\r\n--line--\r\n"
        kind = {"content-type": "multipart/form-data; boundary=line"}
        code, answer, _ = asked(address, "/caption/upload", body=body, headers=kind)
        values = json.loads(answer)
        assert values["results"][0]["text"] if code == 200 else values["error"]["message"]
        return code

    with ThreadPoolExecutor(NUM_AT_ONCE) as pool:
        pending = [pool.submit(caption, number) for number in range(NUM_AT_ONCE)]
        while not all(one.done() for one in pending):
            most = max(most, psutil.Process(process.pid).memory_info().rss)
            time.sleep(0.05)
        codes = Counter(one.result() for one in pending)
    assert sum(codes.values()) == NUM_AT_ONCE
    assert set(codes) <= {200, 429, 504}
    assert codes[200] >= NUM_AT_ONCE // 2
    assert most - before < 600 * 2**20
    assert asked(address, "/health")[0] == 200


def test_a_busy_server_refuses_in_words(tmp_path: Path) -> None:
    limits = ("--max-waiting", "4", "--max-upload-mib", "0.05")
    with running("serve", "--model", "micro", *limits, folder=tmp_path) as (address, _):
        body = json.dumps({"text": "A red ball and a blue cat.", "languages": ["de", "fr"]}).encode()
        kind = {"content-type": "application/json"}
        with ThreadPoolExecutor(60) as pool:
            answers = list(pool.map(lambda _: asked(address, "/translate", body=body, headers=kind), range(60)))
        codes = Counter(code for code, _, _ in answers)
        assert set(codes) == {200, 429}
        refused = next(answer for answer in answers if answer[0] == 429)
        assert "try again" in json.loads(refused[1])["error"]["message"]
        assert int(refused[2]["retry-after"]) > 0
        with pytest.raises((urllib.error.URLError, ConnectionError)):
            urllib.request.urlopen(address.replace("127.0.0.1", "127.0.0.2") + "/health", timeout=5)
