"""The files of a captioner's folder, and which of them each reader depends on: these its manifest covers."""

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
GENERATION_FILE = "generation_config.json"
PROCESSOR_FILE = "processor_config.json"
ENCODER_TOKENIZER, DECODER_TOKENIZER = "encoder_tokenizer", "decoder_tokenizer"
SURGERY_FILE = "surgery.json"
CARD_FILE = "README.md"

MODEL_FILES = (CONFIG_FILE, GENERATION_FILE, "model*.safetensors", INDEX_FILE)
PROCESSOR_FILES = (PROCESSOR_FILE, f"{ENCODER_TOKENIZER}/*", f"{DECODER_TOKENIZER}/*")
SHORTLIST_FILES = ("shortlists/*.json",)
MEAN_IMAGE_FILE = "mean_image.safetensors"
GUIDANCE_FILES = (MEAN_IMAGE_FILE,)
OTHER_FILES = (SURGERY_FILE, "token_map.*")
# All but the card, which people edit.
CAPTIONER_FILES = (*MODEL_FILES, *PROCESSOR_FILES, *SHORTLIST_FILES, *GUIDANCE_FILES, *OTHER_FILES)
