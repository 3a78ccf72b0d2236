"""Evaluation: cross-entropy per task-language pair, and what generated captions say."""
