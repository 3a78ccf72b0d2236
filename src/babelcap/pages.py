"""HTML pages from the templates of the package: Python computes plain values, a template lays them out.

Everything is escaped; a value that a template names and nobody gave is an error. Pictures are bytes, put into the page
as data addresses, so that a page is one file.
"""

import base64
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined


def data_address(picture: bytes) -> str:
    """The address of a PNG picture inside the page."""
    return "data:image/png;base64," + base64.b64encode(picture).decode("ascii")


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("babelcap", package_path=""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["data_address"] = data_address
    return environment


def render(template_name: str, **values: object) -> str:
    """The template of this name (a path inside the package, such as `report/page.html.jinja`) filled with values."""
    return _environment().get_template(template_name).render(**values)
