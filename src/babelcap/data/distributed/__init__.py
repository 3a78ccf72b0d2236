"""Datasets as others distribute them: their texts, and where their pictures lie."""
