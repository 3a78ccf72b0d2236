"""The parts that are compiled. They are optional: without a compiler the installation goes on, and torch multiplies."""

from setuptools import Extension, setup

NATIVE = "src/babelcap/native"


def product(name: str) -> Extension:
    return Extension(
        f"babelcap.native._{name}",
        [f"{NATIVE}/{name}.c"],
        depends=[f"{NATIVE}/parts.h"],
        define_macros=[("Py_LIMITED_API", "0x030B0000")],
        # No sum is joined with its product unless the source says so: int8's results are those of torch, bit for bit.
        extra_compile_args=["-O3", "-ffp-contract=off"],
        py_limited_api=True,
        optional=True,
    )


setup(ext_modules=[product("int8"), product("float32")], options={"bdist_wheel": {"py_limited_api": "cp311"}})
