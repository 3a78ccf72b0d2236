"""Commands in a newcomer's folder, each a process of its own, and a captioner that has learnt nothing."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import torch

from babelcap.models.checkpoints.processor import CaptionProcessor
from babelcap.models.checkpoints.tokenizers import load_tokenizer
from babelcap.models.network.captioner import Captioner
from babelcap.models.network.configuration import CaptionerConfig

SIZE_PX = 32

# Importing torch takes longer than most of these commands: a process imports it once and forks for each of them, which
# has then its own standard input, output, errors and exit code, as if it had been started by itself.
FORKS = """
import gc, json, os, sys
import babelcap.laws, babelcap.evaluation.captions, babelcap.evaluation.loss, babelcap.data.importers.folder
from babelcap.cli import main
gc.freeze()
for line in sys.stdin:
    arguments, *files = json.loads(line)
    child = os.fork()
    if child == 0:
        for number, (name, flags) in enumerate(zip(files, (os.O_RDONLY, os.O_WRONLY, os.O_WRONLY))):
            os.dup2(os.open(name, flags), number)
        sys.argv = ["babelcap", *arguments]
        try:
            main()
        except SystemExit as stop:
            sys.stdout.flush(), sys.stderr.flush()
            os._exit(stop.code or 0)  # freeing what torch has takes a second
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@dataclass(frozen=True)
class Done:
    command: str
    code: int
    stdout: str
    stderr: str

    def __post_init__(self) -> None:
        lines = (self.stdout + "\n" + self.stderr).splitlines()
        assert not any(line.lstrip().startswith("Traceback") for line in lines), f"{self.command}:\n{self.stderr}"

    def ends(self, code: int, words: str) -> "Done":
        said = f"{self.command} [{self.code}]\n{self.stdout}\n{self.stderr}"
        assert self.code == code, said
        assert words in self.stdout + self.stderr, said
        return self

    @property
    def rows(self) -> list[dict]:
        return [json.loads(line) for line in self.stdout.splitlines()]


class Walk:
    """Commands in a newcomer's folder."""

    def __init__(self, folder: Path, outputs: Path) -> None:
        self.folder, self.outputs = folder, outputs
        self.forks = self._start("-c", FORKS)

    def _start(self, *arguments: object) -> "subprocess.Popen[str]":
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "COLUMNS": "200"}
        return subprocess.Popen(
            [sys.executable, *map(str, arguments)], cwd=self.folder, env=environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def start(self, *arguments: object) -> "subprocess.Popen[str]":
        return self._start("-m", "babelcap", *arguments)

    def end(self, process: "subprocess.Popen[str]") -> Done:
        stdout, stderr = process.communicate(timeout=300)
        return Done(" ".join(map(str, process.args)), process.returncode, stdout, stderr)  # type: ignore[arg-type]

    def run(self, *arguments: object, standard_input: Path = Path(os.devnull)) -> Done:
        files = [standard_input, self.outputs / "stdout", self.outputs / "stderr"]
        for path in files[1:]:
            path.write_bytes(b"")
        assert self.forks.stdin is not None
        assert self.forks.stdout is not None
        assert self.forks.stderr is not None
        command = list(map(str, arguments))
        self.forks.stdin.write(json.dumps([command, *map(str, files)]) + "\n")
        self.forks.stdin.flush()
        code = self.forks.stdout.readline()
        assert code, self.forks.stderr.read()
        return Done(" ".join(command), int(code), *(path.read_text(encoding="utf-8") for path in files[1:]))

    def close(self) -> None:
        _, errors = self.forks.communicate(timeout=60)
        assert (self.forks.returncode, errors) == (0, "")


def save_captioner(folder: Path, tokenizers: Path) -> None:
    encoder, decoder = (load_tokenizer(tokenizers / name) for name in ("encoder", "decoder"))
    width = 16
    vision = {
        "depths": [1, 1], "embed_dim": [8, 16], "num_heads": [2, 2], "num_groups": [2, 2], "patch_size": [7, 3],
        "patch_stride": [4, 2], "patch_padding": [3, 1], "patch_prenorm": [False, True], "window_size": 4,
        "projection_dim": width, "drop_path_rate": 0.0, "max_position_embeddings": 8,
    }  # fmt: skip
    text = {
        "vocab_size": len(encoder), "d_model": width, "encoder_layers": 1, "encoder_attention_heads": 2,
        "encoder_ffn_dim": 32, "max_position_embeddings": 160,
    }  # fmt: skip
    gemma = {
        "vocab_size": len(decoder), "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "head_dim": 8,
        "num_key_value_heads": 1, "intermediate_size": 32, "max_position_embeddings": 160, "sliding_window": 8,
        "query_pre_attn_scalar": 8, "encoder_hidden_size": width, "pad_token_id": decoder.pad_token_id,
        "bos_token_id": decoder.bos_token_id, "eos_token_id": decoder.eos_token_id,
    }  # fmt: skip
    torch.manual_seed(0)
    config = CaptionerConfig(
        encoder_config={"kind": "florence2", "vision_config": vision, "text_config": text},
        decoder_config={"kind": "gemma2", **gemma},
        image_size_px=SIZE_PX,
    )
    Captioner(config).save_pretrained(folder)
    CaptionProcessor(encoder, decoder, image_size_px=SIZE_PX).save_pretrained(folder)
