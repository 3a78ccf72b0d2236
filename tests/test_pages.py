"""Templates escape everything, miss nothing in silence, and are found inside the package."""

import base64

import pytest
from jinja2 import TemplateNotFound, UndefinedError

from babelcap.pages import _environment, data_address, render


def test_values_are_escaped() -> None:
    page = _environment().from_string("<p title='{{ text }}'>{{ text }}</p>").render(text="<script>'\"&")
    assert page == "<p title='&lt;script&gt;&#39;&#34;&amp;'>&lt;script&gt;&#39;&#34;&amp;</p>"


def test_a_value_that_nobody_gave_is_an_error() -> None:
    with pytest.raises(UndefinedError):
        _environment().from_string("{{ missing }}").render()


def test_a_template_is_named_by_its_path_in_the_package() -> None:
    with pytest.raises(TemplateNotFound, match=r"report/none\.html\.jinja"):
        render("report/none.html.jinja")


def test_a_picture_becomes_an_address() -> None:
    address = data_address(b"\x89PNG")
    assert address.startswith("data:image/png;base64,")
    assert base64.b64decode(address.partition(",")[2]) == b"\x89PNG"
