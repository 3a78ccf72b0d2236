"""A small world of pictures and sentences with known truth: scenes, a renderer, six grammars, a parser and a corpus."""
