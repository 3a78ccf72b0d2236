"""How much a server takes on: every bound that the app and the API have, in one value."""

from dataclasses import dataclass

from babelcap.errors import UserError

MIB = 2**20


@dataclass(frozen=True)
class Limits:
    max_upload_bytes: int = 20 * MIB  # of one picture, as encoded
    max_pixels: int = 40_000_000  # of one picture, as its header says
    max_text_characters: int = 4000
    max_new_tokens: int = 256
    max_beams: int = 8
    max_waiting: int = 256  # texts that wait for the model, of all users together
    max_gathered: int = 64  # texts that are looked at together when the model is free
    batch_size: int = 16
    max_bytes_in_flight: int = 256 * MIB  # of request bodies that are held at once
    timeout_seconds: float = 60.0  # from a request's arrival to its answer

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not value > 0:
                raise UserError(f"{name} is {value}; it must be greater than 0")

    @property
    def max_body_bytes(self) -> int:
        """Of a request: a picture as base64 takes four bytes for three, and there is some text around it."""
        return self.max_upload_bytes * 4 // 3 + MIB


class Refused(UserError):
    """Not the request's fault: the server has too much to do. `seconds` later it may be asked again."""

    seconds = 2


class TooSlow(UserError):
    """The answer was not there within the time limit."""


class TooLarge(UserError):
    """More bytes, pixels or texts than the server takes."""
