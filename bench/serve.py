"""`babelcap serve`: two hundred requests at once against the same one by one, in alternating rounds on one server.

Each asks for one caption of one picture. What is compared is requests a second; refusals count as such and are told.
"""

import argparse
import http.client
import io
import json
import re
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import psutil
from PIL import Image

LANGUAGES = ("de", "fr", "es", "ru", "zh", "en")


def caption(place: str, body: bytes) -> int:
    connection = http.client.HTTPConnection(place, timeout=300)
    connection.request("POST", "/caption/upload", body, {"content-type": "multipart/form-data; boundary=line"})
    answer = connection.getresponse()
    values = json.loads(answer.read())
    connection.close()
    assert values["results"][0]["text"] if answer.status == 200 else values["error"]["message"]
    return answer.status


def body_of(number: int) -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (320, 240), (number % 256, 80, 160)).save(stream, format="JPEG")
    parts = {b'name="image"; filename="a.jpg"': stream.getvalue(), b'name="language"': LANGUAGES[number % 6].encode()}
    written = b"".join(b"--line\r\nContent-Disposition: form-data; %b\r\n\r\n%b\r\n" % part for part in parts.items())
    return written + b"--line--\r\n"


def timed(place: str, num: int, at_once: int) -> tuple[float, Counter[int]]:
    """Requests a second, and their codes."""
    bodies = [body_of(number) for number in range(num)]
    start = time.perf_counter()
    with ThreadPoolExecutor(at_once) as pool:
        codes = Counter(pool.map(lambda body: caption(place, body), bodies))
    return num / (time.perf_counter() - start), codes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="micro")
    parser.add_argument("--at-once", type=int, default=200)
    parser.add_argument("--one-by-one", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    command = [sys.executable, "-m", "babelcap", "serve", "--model", options.model, "--port", "0", "--timeout", "300"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        found = re.search(r"http://\S+", server.stdout.readline())
        assert found is not None, "the server did not start"
        place, process = urlsplit(found.group()).netloc, psutil.Process(server.pid)
        timed(place, 6, 1)
        before = most = process.memory_info().rss
        ended = threading.Event()

        def watch() -> None:
            nonlocal most
            while not ended.wait(0.05):
                most = max(most, process.memory_info().rss)

        watcher = threading.Thread(target=watch)
        watcher.start()
        ratios = []
        for _ in range(options.rounds):
            alone, _ = timed(place, options.one_by_one, 1)
            together, codes = timed(place, options.at_once, options.at_once)
            ratios.append(together / alone)
            print(
                f"one by one {alone:6.1f} requests/s; {options.at_once} at once {together:6.1f} requests/s; "
                f"{together / alone:.2f} times; codes {dict(codes)}"
            )
        ended.set()
        watcher.join()
        print(f"ratio {statistics.median(ratios):.2f} (median of {options.rounds})")
        print(f"memory {before / 2**20:.0f} MiB before, {most / 2**20:.0f} MiB at most")
    finally:
        server.terminate()
        server.wait(30)


if __name__ == "__main__":
    main()
