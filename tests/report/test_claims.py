"""Verdicts follow from records: each claim holds where it should, fails where it should, and says what is missing."""

import math
import random
from collections.abc import Callable

import pytest

from babelcap.records import EvalResult, RunRecord
from babelcap.report.build import make_claims
from babelcap.report.formatting import estimate
from babelcap.report.statistics import Estimate, difference_of_shares, share_over_seeds
from babelcap.report.study_folder import Study
from babelcap.report.study_laws import fit_study_laws
from babelcap.report.verdicts import (
    DOES_NOT,
    HOLDS,
    NOT_MEASURED,
    PARTLY,
    Claim,
    Condition,
    at_least,
    at_most,
    verdict_of,
)

Change = Callable[[RunRecord, EvalResult], EvalResult]


def claims_of(records: list[RunRecord]) -> dict[str, Claim]:
    study = Study(tuple(records))
    return {claim.key: claim for claim in make_claims(study, fit_study_laws(study))}


def changed(records: list[RunRecord], change: Change) -> list[RunRecord]:
    return [record.model_copy(update={"results": [change(record, r) for r in record.results]}) for record in records]


def scaled(result: EvalResult, factor: float) -> EvalResult:
    return result.model_copy(
        update={
            "per_pair": {name: number * factor for name, number in result.per_pair.items()},
            "per_split": {name: number * factor for name, number in result.per_split.items()},
        }
    )


@pytest.fixture(scope="module")
def claims(records: list[RunRecord]) -> dict[str, Claim]:
    return claims_of(records)


@pytest.mark.parametrize(
    ("held", "verdict"),
    [
        ([(True, True), (True, False)], HOLDS),
        ([(True, True), (False, False)], PARTLY),
        ([(True, True), (None, False)], PARTLY),
        ([(True, True), (False, True)], PARTLY),
        ([(True, True), (None, True)], PARTLY),
        ([(False, True), (True, False)], DOES_NOT),
        ([(None, True), (True, False)], NOT_MEASURED),
    ],
)
def test_the_verdict_follows_from_the_conditions(held: list[tuple[bool | None, bool]], verdict: str) -> None:
    conditions = [Condition("x", Estimate(1.0), "", holds, is_deciding) for holds, is_deciding in held]
    assert verdict_of(conditions) == verdict


def test_the_simulated_study_is_judged_as_it_was_made(claims: dict[str, Claim]) -> None:
    for key in ("emergence", "prefix", "law-conditioned", "uc-exponents", "st-exponents", "sc-exponents", "holdout"):
        assert claims[key].verdict == HOLDS, (key, claims[key])
    assert claims["law-raw"].verdict == PARTLY


def test_measured_values_are_those_of_the_records(records: list[RunRecord], claims: dict[str, Claim]) -> None:
    """Worked out again from the records, without the report's own reading."""
    found = []
    for record in records:
        if (record.size, record.base, record.num_steps, record.kind) == ("micro-gemma-l", "balanced", 1000, "main"):
            for result in record.results:
                if result.measure == "captions/objects/prefix" and result.split == "eval":
                    unseen = [result.per_pair[f"caption-{code}"] for code in ("fr", "es", "ru", "zh")]
                    found.append(sum(unseen) / 4)
    assert len(found) == 3
    measured = claims["emergence"].conditions[0].measured
    assert measured is not None
    assert measured.value == pytest.approx(sum(found) / 3)


def test_exponents_are_those_the_simulation_was_made_with(claims: dict[str, Claim]) -> None:
    for condition, truth in zip(claims["uc-exponents"].conditions, (-0.16, -0.14, 0.5), strict=True):
        assert condition.measured is not None
        assert condition.measured.value == pytest.approx(truth, abs=0.06)


def test_raw_loss_that_does_not_obey_is_explained_by_numbers(claims: dict[str, Claim]) -> None:
    text = " ".join(claims["law-raw"].notes)
    assert "does not obey" in text
    assert "nats a token" in text
    assert "does not obey" not in " ".join(claims["law-conditioned"].notes)


def test_captions_at_chance_do_not_emerge(records: list[RunRecord]) -> None:
    def blind(record: RunRecord, result: EvalResult) -> EvalResult:
        is_content = result.measure.startswith(("captions/objects/", "captions/colours/"))
        return scaled(result, 0.0) if is_content and not result.measure.endswith("chance") else result

    found = claims_of(changed(records, blind))
    assert found["emergence"].verdict == DOES_NOT
    assert found["holdout"].verdict == DOES_NOT
    assert found["loss-content"].verdict == NOT_MEASURED  # what never changes has no correlation


def test_a_prefix_that_adds_nothing_is_not_needed(records: list[RunRecord]) -> None:
    def same(record: RunRecord, result: EvalResult) -> EvalResult:
        if result.measure == "captions/language/plain":
            prefix = next(
                r for r in record.results if r.measure == "captions/language/prefix" and r.split == result.split
            )
            return prefix.model_copy(update={"measure": result.measure})
        return result

    assert claims_of(changed(records, same))["prefix"].verdict == DOES_NOT


def test_a_model_that_ignores_the_picture_is_found_out(records: list[RunRecord]) -> None:
    def ignore(record: RunRecord, result: EvalResult) -> EvalResult:
        if not result.measure.endswith("/shuffled"):
            return result
        own = next(r for r in record.results if r.measure == result.measure.removesuffix("/shuffled"))
        return own.model_copy(update={"measure": result.measure})

    assert claims_of(changed(records, ignore))["image"].verdict == DOES_NOT


def test_a_model_that_says_nothing_meets_no_claim(records: list[RunRecord]) -> None:
    """Nor by what holds of it vacuously: no language without prefix, nothing that the prefix adds."""

    def silent(record: RunRecord, result: EvalResult) -> EvalResult:
        is_said = result.measure.startswith("captions/") and not result.measure.endswith("chance")
        return scaled(result, 0.0) if is_said else result

    found = claims_of(changed(records, silent))
    for key in ("emergence", "prefix", "finetuning", "holdout"):
        assert found[key].verdict == DOES_NOT, key


def test_losses_that_obey_no_law_are_said_not_to(records: list[RunRecord]) -> None:
    """Losses that rise and fall with the seed alone: predicted within a few per cent, explained by nothing."""

    def noise(record: RunRecord, result: EvalResult) -> EvalResult:
        if not result.measure.startswith("cross_entropy/"):
            return result
        wobble = random.Random(f"{record.run} {result.measure}").uniform(0.97, 1.03)
        return result.model_copy(update={"per_split": dict.fromkeys(("UC", "ST", "SC"), 2 * wobble)})

    found = claims_of(changed(records, noise))
    for key in ("law-conditioned", "law-raw", "uc-exponents", "st-exponents"):
        assert found[key].verdict == DOES_NOT, (key, found[key])


@pytest.mark.parametrize(
    ("kind", "key", "expected"),
    [("finetuned", "finetuning", NOT_MEASURED), ("no-translation", "emergence", PARTLY)],
)
def test_missing_runs_are_not_measured(records: list[RunRecord], kind: str, key: str, expected: str) -> None:
    found = claims_of([record for record in records if record.kind != kind])[key]
    assert found.verdict == expected
    assert any(condition.measured is None for condition in found.conditions)


def test_one_seed_does_not_hold(records: list[RunRecord]) -> None:
    found = claims_of([record for record in records if record.seed == 0])
    assert found["emergence"].verdict == PARTLY
    assert found["prefix"].verdict == PARTLY
    assert found["image"].verdict == NOT_MEASURED  # a loss of one run has no interval


def test_too_few_runs_have_no_law(records: list[RunRecord]) -> None:
    found = claims_of([r for r in records if r.num_steps == 1000 and r.size == "micro-gemma-l"])
    assert found["law-conditioned"].verdict == NOT_MEASURED
    assert "not identified" in " ".join(found["law-conditioned"].notes)
    assert found["uc-exponents"].verdict == NOT_MEASURED


def test_without_main_runs_nothing_is_measured(records: list[RunRecord]) -> None:
    found = claims_of([record for record in records if record.kind == "finetuned"])
    assert {claim.verdict for claim in found.values()} == {NOT_MEASURED}


def test_controls_never_reach_a_law(records: list[RunRecord]) -> None:
    laws = fit_study_laws(Study(tuple(records))).get("conditioned", "UC", "pst")
    assert laws is not None
    assert laws.fitted is not None
    assert len(laws.fitted.points) == sum(r.family == "gemma" and r.kind == "main" for r in records)


def test_relations_are_judged_against_a_guess_between_opposites(records: list[RunRecord]) -> None:
    """Above what captions of other pictures reach (.2) is not enough: half is a coin."""

    def of(level: float, name: str = "relations") -> Claim:
        def change(record: RunRecord, result: EvalResult) -> EvalResult:
            if result.measure != "captions/relations/prefix":
                return result
            per_pair, per_split = (dict.fromkeys(found, level) for found in (result.per_pair, result.per_split))
            return result.model_copy(
                update={"measure": f"captions/{name}/prefix", "per_pair": per_pair, "per_split": per_split}
            )

        return claims_of(changed([r for r in records if r.size == "micro-gemma-l"], change))["relations"]

    assert of(0.55).verdict == DOES_NOT
    assert of(0.9).verdict == HOLDS
    assert "between opposites 0.50" in of(0.55).conditions[0].needs
    assert of(0.9, "directions").conditions[0].what.startswith("directions right")
    assert of(math.nan).conditions[0].holds is None


def test_a_rate_over_nothing_is_no_number() -> None:
    nothing = share_over_seeds([math.nan, math.nan], 80)
    assert nothing is not None
    assert not nothing.is_number
    assert estimate(nothing) == "nothing named"
    assert (at_least("x", nothing, 0.5).holds, at_most("x", nothing, 0.5).holds) == (None, None)
    some = share_over_seeds([math.nan, 0.4, 0.6], 80)  # a seed that named nothing says nothing of the rate
    assert some is not None
    assert (some.value, some.num) == (0.5, 2)
    assert estimate(difference_of_shares([math.nan], [0.5], 80)) == "nothing named"


@pytest.mark.parametrize(
    ("value", "shown"), [(0.1504, "15.04 %"), (0.15, "15.0 %"), (0.1528, "15.3 %"), (0.14999, "14.999 %")]
)
def test_as_many_digits_as_tell_a_value_from_its_limit(value: float, shown: str) -> None:
    condition = at_most("error", Estimate(value), 0.15, decimals=1, unit="%")
    assert estimate(condition.measured, condition.decimals, condition.unit) == shown
    assert condition.needs == "at most 15 %"
    assert condition.holds == (value <= 0.15)


def test_claims_are_of_a_cell_with_enough_seeds(records: list[RunRecord]) -> None:
    """A single run of a larger model takes the place of none that has three seeds."""
    shown = Study(tuple(records)).headline()
    assert shown is not None
    assert len(shown.records) >= 3
    larger = shown.records[0].model_copy(
        update={"run": "larger", "size": "micro-gemma-xl", "P": 10 * shown.records[0].P}
    )
    assert Study((*records, larger)).headline() == shown
    alone = Study((shown.records[0], larger)).headline()
    assert alone is not None
    assert alone.key.size == "micro-gemma-xl"


def test_claims_are_of_a_size_that_has_controls(records: list[RunRecord]) -> None:
    """A little larger, of another family, with as many seeds, but with nothing to be held against."""
    shown = Study(tuple(records)).headline()
    assert shown is not None
    assert shown.key.size == "micro-gemma-l"
    larger = [
        record.model_copy(update={"run": f"larger.s{record.seed}", "size": "micro-florence-l", "P": record.P + 1})
        for record in shown.records
    ]
    assert Study((*records, *larger)).headline() == shown
    without = [record for record in records if record.kind not in ("no-translation", "unfit-translation")]
    taken = Study((*without, *larger)).headline()
    assert taken is not None
    assert taken.key.size == "micro-florence-l"
