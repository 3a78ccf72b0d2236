"""Reading and writing captioners: our format, the published one, imports, tokenizers."""
