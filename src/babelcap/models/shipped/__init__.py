"""Captioners whose trained part comes with the package; the rest is assembled from what pip installed."""
