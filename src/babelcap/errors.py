"""What a user did that cannot work, and what a sample has that cannot be used: reported, never a traceback."""

import errno

MAX_CHARACTERS = 1500  # of a message, whatever a file has for names and values


def one_line(text: str) -> str:
    """Names and values of others stand in messages: what ends a line or commands a terminal is shown as an escape."""
    line = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    half = MAX_CHARACTERS // 2
    return line if len(line) <= MAX_CHARACTERS else f"{line[:half]} ... {line[-half:]}"


DISK_ERRORS = {
    errno.ENOSPC: "the disk is full; nothing was replaced, free some space and run the same command again",
    errno.EDQUOT: "the disk quota is used up; nothing was replaced, free some space and run the same command again",
    errno.EROFS: "the file system is read-only; choose an output elsewhere",
    errno.EACCES: "permission denied; choose a path you may use",
    errno.EPERM: "permission denied; choose a path you may use",
}
NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EROFS}  # whatever is tried next would fail too


def disk_message(error: OSError) -> str | None:
    """What the user is told of an error that is the disk's; None of any other."""
    if error.errno not in DISK_ERRORS:
        return None
    return (f"{error.filename}: " if error.filename else "") + DISK_ERRORS[error.errno]


class UserError(Exception):
    """A mistake the user can mend. The message is one line: the field, what was found, what to do. Exit code 2."""

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))


class BadSample(Exception):
    """An image or a text that cannot be used. It is skipped and counted under `reason`, a short fixed phrase."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(one_line(f"{reason}: {detail}" if detail else reason))
        self.reason = reason
        self.detail = detail
