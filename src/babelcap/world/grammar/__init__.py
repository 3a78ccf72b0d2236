"""Six grammars over one meaning: tables of words and templates, and a small realiser for each language."""
