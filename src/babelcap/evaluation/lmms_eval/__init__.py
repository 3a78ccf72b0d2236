"""babelcap and lmms-eval: our captioners as a model of it, and tasks of the benchmarks that it lacks."""
