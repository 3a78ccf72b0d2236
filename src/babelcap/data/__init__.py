"""The corpus: images in tars as downloaded, annotations in Parquet beside them, and exact sampling from both."""
