"""A captioner's folder on its way to the hub: checked, with its model card, uploaded."""

from pathlib import Path

from huggingface_hub import HfApi
from huggingface_hub.errors import HfHubHTTPError, HFValidationError
from huggingface_hub.utils import validate_repo_id

from babelcap.errors import UserError
from babelcap.models.checkpoints.card import has_edited_card, write_card
from babelcap.models.checkpoints.checking import check_captioner
from babelcap.models.checkpoints.files import CAPTIONER_FILES, CARD_FILE
from babelcap.storage import MANIFEST


def push_captioner(folder: str | Path, repository: str, *, private: bool = False, dry_run: bool = False) -> str:
    """Uploads the captioner's own files and its card, and returns the address; a dry run writes the card only.

    A card that its author has edited stays as it is.
    """
    try:
        validate_repo_id(repository)
    except HFValidationError as error:
        raise UserError(f"'{repository}' is not a name on the hub ({error})") from None
    if "/" not in repository:
        raise UserError(f"'{repository}' is not a name on the hub, which has the form owner/model")
    found = check_captioner(folder)
    if found.problems:
        raise UserError(f"{found.problems[0]}; nothing was uploaded, `babelcap model check` lists all problems")
    card = Path(folder) / CARD_FILE
    if not has_edited_card(folder):
        write_card(folder, repository)
    if dry_run:
        return str(card)
    api = HfApi()
    try:
        address = api.create_repo(repository, private=private, exist_ok=True)
        api.upload_folder(
            repo_id=repository, folder_path=str(folder), allow_patterns=[*CAPTIONER_FILES, MANIFEST, CARD_FILE]
        )
    except (HfHubHTTPError, OSError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise UserError(f"{repository}: the hub did not take it ({reason})") from None
    return str(address)
