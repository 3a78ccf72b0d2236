"""Readers of captioners of others, of checkpoints, of pictures, and of what clients send to the server."""

import atexit
import base64
import random
import warnings
from pathlib import Path

import torch

from babelcap.config import build_config
from babelcap.data.feed.images import decode_image
from babelcap.models import load_model, load_processor
from babelcap.storage import write_manifest
from babelcap.training import checkpoint
from babelcap.training.config import TrainConfig
from babelcap.training.optimiser import make_optimiser
from babelcap.training.parallel import World
from tiny_training import make_model, save_model
from torture.readers.pictures import mutated, whole_images
from torture.readers.target import Target, photo, put, put_json

ALONE = World(0, 1, torch.device("cpu"))


def model_folder(folder: Path) -> Target:
    """Weights, configuration and tokenizers without checksums, as folders of others are."""
    place = save_model("bart", folder / "model")
    (place / "manifest.json").unlink(missing_ok=True)

    def read(out: Path) -> None:
        load_model(place)
        load_processor(place)

    return Target(sorted(path for path in place.rglob("*") if path.is_file()), read)


def tokenizers(folder: Path) -> Target:
    place = save_model("bart", folder / "model")
    (place / "manifest.json").unlink(missing_ok=True)
    return Target(sorted(place.glob("*_tokenizer/*")), lambda out: load_processor(place))


def vouched_checkpoint(folder: Path) -> Target:
    """Damage that a manifest vouches for, as a faulty program would write it."""
    model = make_model("bart")
    optimiser = make_optimiser(model, build_config(TrainConfig, {"model": "m", "data": {"corpus": "c"}}).optimiser)
    checkpoint.save_checkpoint(folder, model, optimiser, {"step": 5}, ALONE)
    place = folder / "step-00000005"

    def read(out: Path) -> None:
        write_manifest(place)
        checkpoint.load_checkpoint(place, model, optimiser, {}, ALONE)

    return Target([*place.glob("*.safetensors"), place / "progress.json"], read)


def pictures(folder: Path) -> Target:
    """One of every format and mode; damage to the list of numbers draws other damage to a picture."""
    whole, path = whole_images(), put(folder / "draw.bin", bytes(range(64)))

    def read(out: Path) -> None:
        draw = random.Random(path.read_bytes())
        if path.read_bytes() == bytes(range(64)):
            decode_image(whole[0], 32)
            return
        decode_image(mutated(draw.choice(whole), draw), 32, max_pixels=4_000_000)

    return Target([path], read)


def picture_bytes(folder: Path) -> Target:
    """A picture as it lies in a tar."""
    path = put(folder / "photo.jpg", photo(3))
    return Target([path], lambda out: decode_image(path.read_bytes(), 32, max_pixels=4_000_000))


def uploads(folder: Path) -> Target:
    """Bodies of requests: each is answered, or refused in words with a code of the 400s."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from fastapi.testclient import TestClient

        from babelcap.app.engine import Engine
        from babelcap.app.limits import Limits
        from babelcap.app.serve.api import ServeOptions, make_api
        from babelcap.app.serve.gate import Gate
        from babelcap.models import load

        engine = Engine(load("micro"), Limits(max_upload_bytes=2**20, max_pixels=4_000_000, timeout_seconds=60))
        app = Gate(make_api(engine, ServeOptions("micro")), engine.limits, ("testserver",))
        client = TestClient(app, raise_server_exceptions=False)
    atexit.register(engine.close)
    address = "data:image/png;base64," + base64.b64encode(photo(5)).decode()
    chat = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": address}}]}]
    line = b"--line\r\nContent-Disposition: form-data; name="
    form = line + b'"image"; filename="a.png"\r\n\r\n' + photo(4) + b"\r\n"
    form += line + b'"language"\r\n\r\nde\r\n' + line + b'"max_new_tokens"\r\n\r\n2\r\n--line--\r\n'
    asked = {"languages": ["de"], "max_new_tokens": 2}
    routes = {
        put_json(folder / "caption.json", {"image": address, **asked}): "/caption",
        put_json(folder / "chat.json", {"model": "micro", "messages": chat, "max_tokens": 2}): "/v1/chat/completions",
        put_json(folder / "text.json", {"text": "A dog.", **asked}): "/translate",
        put(folder / "form.bin", form): "/caption/upload",
    }
    sound = {path: path.read_bytes() for path in routes}

    def read(out: Path) -> None:
        for path, route in routes.items():
            body = path.read_bytes()
            if body == sound[path] and any(other.read_bytes() != sound[other] for other in routes):
                continue  # not the damaged one
            kind = "application/json" if path.suffix == ".json" else "multipart/form-data; boundary=line"
            answer = client.post(route, content=body, headers={"content-type": kind})
            assert answer.status_code < 500, (route, answer.status_code, answer.text[:300])
            assert answer.status_code < 300 or answer.json()["error"]["message"], (route, answer.text[:300])

    return Target(list(routes), read)
