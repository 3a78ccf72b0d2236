"""The parts that are compiled. They are optional: without a compiler the installation goes on, and torch multiplies."""

from setuptools import Extension, setup

NATIVE = "src/babelcap/native"


def compiled(name: str) -> Extension:
    return Extension(
        f"babelcap.native._{name}",
        [f"{NATIVE}/{name}.c"],
        depends=[f"{NATIVE}/parts.h"],
        define_macros=[("Py_LIMITED_API", "0x030B0000")],
        # No sum is joined with its product unless the source says so: int8's results are those of torch, bit for bit.
        # Nobody asks for traps: without the second, loops that compare floats are no vectors.
        extra_compile_args=["-O3", "-ffp-contract=off", "-fno-trapping-math"],
        py_limited_api=True,
        optional=True,
    )


setup(
    ext_modules=[compiled(name) for name in ("int8", "float32", "best")],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
