"""Decoding: caches, packed weights, shortlists of tokens."""
