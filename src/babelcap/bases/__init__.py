"""Base models in small: a vision tower, English captioners and language models, made by recipe or shipped."""
