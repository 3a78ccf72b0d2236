"""The corpus on disk: images stay in their tars, annotations lie beside them, an index makes both addressable."""
