"""From the settings of a call of `generate` to the rules of our own search, or None where transformers' has to run."""

from typing import Any

from transformers import GenerationConfig

from babelcap.models.generation.searching import SearchRules

OWN = (
    "num_beams",
    "num_return_sequences",
    "max_length",
    "min_length",
    "eos_token_id",
    "pad_token_id",
    "bos_token_id",
    "decoder_start_token_id",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "length_penalty",
    "early_stopping",
    "no_repeat_ngram_size",
    "guidance_scale",
    "use_cache",
    "do_sample",
)
# Said of drawing tokens, of drafts by another model, of what is returned beside the tokens, or of nothing any more.
WITHOUT_EFFECT = (
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "typical_p",
    "epsilon_cutoff",
    "eta_cutoff",
    "num_assistant_tokens",
    "num_assistant_tokens_schedule",
    "assistant_confidence_threshold",
    "assistant_lookbehind",
    "target_lookbehind",
    "is_assistant",
    "transformers_version",
    "max_new_tokens",
    "min_new_tokens",
    "_from_model_config",
)
NEUTRAL: dict[str, Any] = {"repetition_penalty": 1.0, "encoder_repetition_penalty": 1.0, "num_beam_groups": 1}
INPUTS = ("input_ids", "attention_mask", "pixel_values", "image_features", "decoder_input_ids", "encoder_outputs")


def search_rules(generation_config: GenerationConfig, given: dict[str, Any]) -> SearchRules | None:
    """`given` are the call's own settings; what neither names has no effect."""
    settings = generation_config.to_dict() | {name: value for name, value in given.items() if value is not None}
    for name, value in settings.items():
        is_neutral = value is None or value is False or value in (0, "", [], {}) or value == NEUTRAL.get(name)
        if name not in OWN and name not in WITHOUT_EFFECT and not is_neutral:
            return None
    if settings.get("do_sample") or settings.get("use_cache") is False or not settings.get("max_length"):
        return None
    num_beams = settings.get("num_beams") or 1
    num_returned = settings.get("num_return_sequences") or 1
    if num_returned > num_beams:
        return None
    penalty = settings.get("length_penalty")
    return SearchRules(
        num_beams=num_beams,
        max_length=settings["max_length"],
        ends=frozenset(as_list(settings.get("eos_token_id"))),
        min_length=settings.get("min_length") or 0,
        num_returned=num_returned,
        length_penalty=1.0 if penalty is None else penalty,
        early_stopping=settings.get("early_stopping") or False,
        no_repeat_ngram_size=settings.get("no_repeat_ngram_size") or 0,
        forced_first=settings.get("forced_bos_token_id"),
        forced_last=tuple(as_list(settings.get("forced_eos_token_id"))),
    )


def as_list(value: Any) -> list[int]:
    if value is None:
        return []
    return [int(token) for token in value] if hasattr(value, "__iter__") else [int(value)]
