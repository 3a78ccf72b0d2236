"""What a user did that cannot work, and what a sample has that cannot be used: reported, never a traceback."""


class UserError(Exception):
    """A mistake the user can mend. The message is one line: the field, what was found, what to do. Exit code 2."""


class BadSample(Exception):
    """An image or a text that cannot be used. It is skipped and counted under `reason`, a short fixed phrase."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason
        self.detail = detail
