"""Looking at a corpus: check, count, show, export."""
