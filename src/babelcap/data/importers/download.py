"""Dataset repositories of the Hugging Face hub, fetched file by file; what is there already is not fetched again."""

from collections.abc import Sequence
from pathlib import Path

from babelcap.errors import UserError


def download_dataset(repository: str, folder: Path, patterns: Sequence[str]) -> Path:
    """The folder, holding every file of the repository that fits a pattern. Interrupted downloads go on."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, RepositoryNotFoundError

    try:
        snapshot_download(repository, repo_type="dataset", local_dir=folder, allow_patterns=list(patterns))
    except RepositoryNotFoundError:
        raise UserError(f"the hub has no dataset '{repository}', or it asks for a login (`hf auth login`)") from None
    except (HfHubHTTPError, LocalEntryNotFoundError, ConnectionError, TimeoutError) as error:
        raise _no_hub(repository, error) from None
    except Exception as error:
        if "connect" not in f"{type(error).__name__} {error}".lower():
            raise
        raise _no_hub(repository, error) from None
    return folder


def _no_hub(repository: str, error: Exception) -> UserError:
    reason = (str(error).splitlines() or [type(error).__name__])[0][:160]
    return UserError(
        f"cannot fetch '{repository}' from the Hugging Face hub ({reason}); "
        "download it elsewhere and name its folders with --images and --annotations"
    )
