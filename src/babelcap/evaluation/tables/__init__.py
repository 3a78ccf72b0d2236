"""Scores side by side: of several systems, beside the published numbers."""
