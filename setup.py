"""The one part that is compiled. It is optional: without a compiler the installation goes on, and oneDNN multiplies."""

from setuptools import Extension, setup

INT8 = Extension(
    "babelcap.native._int8",
    ["src/babelcap/native/int8.c"],
    define_macros=[("Py_LIMITED_API", "0x030B0000")],
    # No sum is joined with its product unless the source says so: results are those of torch, bit for bit.
    extra_compile_args=["-O3", "-ffp-contract=off"],
    py_limited_api=True,
    optional=True,
)

setup(ext_modules=[INT8], options={"bdist_wheel": {"py_limited_api": "cp311"}})
