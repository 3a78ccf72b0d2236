"""Laws as data: every law is a sum of products of powers, y = sum_k prefactor_k * prod_j column_j ^ exponent_kj.

A floor is a term without columns. In log space each term is linear in its coefficients, which is all a fit needs.
"""

from dataclasses import dataclass

from babelcap.errors import UserError


@dataclass(frozen=True)
class Term:
    """prefactor * prod column^(sign * exponent); `powers` holds (column, coefficient, sign)."""

    prefactor: str
    powers: tuple[tuple[str, str, int], ...] = ()


@dataclass(frozen=True)
class Form:
    name: str
    terms: tuple[Term, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the law reads, each once, in the order of the formula."""
        return tuple(dict.fromkeys(column for term in self.terms for column, _, _ in term.powers))

    @property
    def coefficients(self) -> tuple[str, ...]:
        return tuple(name for term in self.terms for name in (term.prefactor, *(power[1] for power in term.powers)))

    @property
    def prefactors(self) -> tuple[str, ...]:
        return tuple(term.prefactor for term in self.terms)

    @property
    def floor(self) -> str | None:
        """The name of the floor, which is a term without columns."""
        return next((term.prefactor for term in self.terms if not term.powers), None)

    @property
    def is_linear(self) -> bool:
        """One product of powers is linear in log space and has a closed-form fit."""
        return len(self.terms) == 1

    @property
    def formula(self) -> str:
        parts = []
        for term in self.terms:
            factors = [f"{column}^{'-' if sign < 0 else ''}{name}" for column, name, sign in term.powers]
            parts.append(" ".join([term.prefactor, *factors]))
        return "y = " + " + ".join(parts)

    def with_floor(self) -> "Form":
        """The same law plus a floor eps; a law that has a floor already is returned as it is."""
        if self.floor is not None:
            return self
        return Form(f"{self.name}+eps", (*self.terms, Term("eps")))


def product_of_powers(name: str, letter: str, columns: tuple[str, ...]) -> Form:
    """y = b0 * column_1^b1 * column_2^b2 * ..., with the given letter for the coefficients."""
    powers = tuple((column, f"{letter}{index}", 1) for index, column in enumerate(columns, 1))
    return Form(name, (Term(f"{letter}0", powers),))


FORMS = {
    form.name: form
    for form in (
        product_of_powers("compute", "a", ("C",)),
        product_of_powers("ps", "b", ("P", "S")),
        product_of_powers("pst", "b", ("P", "S", "T")),
        Form("chinchilla", (Term("E"), Term("A", (("P", "a", -1),)), Term("B", (("S", "b", -1),)))),
    )
}


def form_of(form: "str | Form", floor: bool = False) -> Form:
    """A form by its name: one of FORMS, or `power:P,S,D` over any columns, each with `+eps` for a floor."""
    if isinstance(form, Form):
        return form.with_floor() if floor else form
    name, plus, rest = form.strip().partition("+")
    if plus and rest.strip() != "eps":
        raise UserError(f"form: found {form!r}; the only addition is '+eps', a floor, as in '{name}+eps'")
    if name.startswith("power:"):
        columns = tuple(column.strip() for column in name.removeprefix("power:").split(","))
        if not all(columns) or len(set(columns)) != len(columns):
            raise UserError(f"form: found {form!r}; name each column once, as in 'power:P,S,T'")
        found = product_of_powers("power:" + ",".join(columns), "b", columns)
    elif name in FORMS:
        found = FORMS[name]
    else:
        known = ", ".join(FORMS)
        raise UserError(f"form: found {form!r}; choose one of {known}, or power:COLUMN,COLUMN,..., each with '+eps'")
    return found.with_floor() if plus or floor else found


def parse_forms(text: str) -> list[str]:
    """Forms with commas between; where one of them has columns, which have commas themselves, with semicolons."""
    with_columns = "power:" in text
    names = [name.strip() for name in text.split(";" if ";" in text or with_columns else ",") if name.strip()]
    for name in names:
        words = {word.strip().removesuffix("+eps") for word in name.removeprefix("power:").split(",")}
        if with_columns and "," in name and (not name.startswith("power:") or words & set(FORMS)):
            raise UserError(f"forms: found {name!r}; with a power: form among them put ';' between, as 'ps;power:P,S'")
    return names
