"""Options that several commands share: a dataclass of them, which a command gets as one argument."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

Command = Callable[..., None]


def with_options(**groups: type) -> Callable[[Command], Command]:
    """In place of each named parameter a command has the options of a dataclass; it is called with one of these."""
    fields = {name: list(inspect.signature(group).parameters.values()) for name, group in groups.items()}

    def decorate(command: Command) -> Command:
        parameters: list[inspect.Parameter] = []
        for name, own in inspect.signature(command).parameters.items():
            parameters += [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in fields.get(name, [own])]

        @functools.wraps(command)
        def called(**values: Any) -> None:
            chosen = {
                name: group(**{field.name: values.pop(field.name) for field in fields[name]})
                for name, group in groups.items()
            }
            command(**chosen, **values)

        called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        called.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return called

    return decorate
