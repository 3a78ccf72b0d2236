"""The fine-tuning corpus: what people wrote, carried by machine into every language; no test image in it."""
