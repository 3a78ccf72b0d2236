"""What a reader sees of a study: figures, tables and a page. Imports without torch."""
