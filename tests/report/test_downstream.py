"""Scores on benchmarks in the report: rank correlations, the table with shuffled pictures, and studies without them."""

from pathlib import Path

import pytest

from babelcap.records import EvalResult, RunRecord
from babelcap.report.build import make_claims
from babelcap.report.downstream import downstream_table, missing_tasks, task_correlation, task_points, tasks_of
from babelcap.report.drawings import make_drawings
from babelcap.report.figures.downstream import downstream_figure, prefix_score_figure
from babelcap.report.statistics import Estimate
from babelcap.report.study_folder import Study
from babelcap.report.study_laws import StudyLaws, fit_study_laws
from babelcap.report.verdicts import DOES_NOT, HOLDS, Claim


def texts(figure: object) -> str:
    from matplotlib.text import Text

    return "\n".join(text.get_text() for text in figure.findobj(Text))  # type: ignore[attr-defined]


def changed(records: list[RunRecord], ending: str, value: float) -> list[RunRecord]:
    """With one value in place of every one of a measure."""

    def result(found: EvalResult) -> EvalResult:
        if not found.measure.endswith(ending):
            return found
        constant = {
            "per_pair": dict.fromkeys(found.per_pair, value),
            "per_split": dict.fromkeys(found.per_split, value),
        }
        return found.model_copy(update=constant)

    return [record.model_copy(update={"results": [result(found) for found in record.results]}) for record in records]


def before_the_benchmarks(records: list[RunRecord]) -> Study:
    return Study(
        tuple(
            record.model_copy(
                update={"results": [r for r in record.results if not r.measure.startswith("downstream/")]}
            )
            for record in records
        )
    )


def one_loss(records: list[RunRecord], scores: list[float]) -> Study:
    """Runs of one model whose SC loss is 1, 2, 3 ... and whose captions score as given."""
    pairs = ["caption-en", "caption-de"]
    found = []
    for number, score in enumerate(scores, 1):
        results = [
            EvalResult(
                measure=measure,
                split="eval",
                per_pair=dict.fromkeys(pairs, value),
                per_split={"SC": value},
                num_samples={},
            )
            for measure, value in (
                ("cross_entropy/sample_mean/raw", number),
                ("downstream/captioning/gated_CIDEr/plain", score),
            )
        ]
        found.append(records[0].model_copy(update={"run": f"r{number}", "S": number, "results": results}))
    return Study(tuple(found))


@pytest.mark.parametrize(
    ("scores", "expected"),
    [([5, 4, 3, 2, 1], -1.0), ([1, 2, 3, 4, 5], 1.0), ([5, 4, 3, 1, 2], -0.9)],  # 1 - 6 sum(d²) / (n (n² - 1))
)
def test_rank_correlation_by_hand(records: list[RunRecord], scores: list[float], expected: float) -> None:
    study = one_loss(records, scores)
    found = task_points(study, tasks_of(study)[0])
    assert found is not None
    score, points = found
    assert [point.score for point in points] == [100 * value for value in scores]  # CIDEr as papers print it
    correlation = task_correlation(points)
    assert correlation is not None
    assert correlation.value == pytest.approx(expected)
    assert score.axis.startswith("CIDEr")


def test_every_kind_of_task_has_its_panel(records: list[RunRecord]) -> None:
    figure = downstream_figure(Study(tuple(records)))
    shown = [axes for axes in figure.axes if axes.axison]
    assert [axes.get_title("left").strip() for axes in shown] == [
        task.title for task in tasks_of(Study(tuple(records)))
    ]
    assert texts(figure).count("rank correlation −0.") == 4
    assert "blind guess" in texts(figure)
    assert "fine-tuned on full coverage" in texts(figure)
    assert [sum(len(dots.get_offsets()) for dots in axes.collections) for axes in shown] == [len(records)] * 4


def test_a_study_from_before_shows_the_objects_that_captions_name(records: list[RunRecord]) -> None:
    study = before_the_benchmarks(records)
    figure = downstream_figure(study)
    assert len([axes for axes in figure.axes if axes.axison]) == 2
    assert "objects right" in texts(figure)
    assert "BLEU" not in texts(figure)
    assert missing_tasks(study) == ["translation", "ambiguity"]
    captions = {drawing.name: drawing.caption for drawing in make_drawings(study, StudyLaws((), "gemma"))}
    assert captions["downstream"].endswith("Not measured in this study: translation; ambiguity.")
    assert downstream_table(study).rows == ()
    prefix = prefix_score_figure(study, study.headline())
    assert "objects right" in texts(prefix)
    assert "ambiguity" not in {claim.key for claim in make_claims(study, fit_study_laws(study))}


def test_prefix_before_and_after_finetuning(records: list[RunRecord]) -> None:
    study = Study(tuple(records))
    figure = prefix_score_figure(study, study.headline())
    assert [axes.get_title("left") for axes in figure.axes] == ["before fine-tuning", "after fine-tuning"]
    before, after = (
        {line.get_label(): line.get_xdata() for line in axes.get_lines() if not line.get_label().startswith("_")}
        for axes in figure.axes
    )
    # French, Spanish, Russian, Chinese stand below English and German.
    assert max(before["prompt alone"][2:]) < 0.5 * min(before["with prefix"][2:])
    assert min(after["prompt alone"]) > 0.9 * max(after["with prefix"])
    only_main = Study(tuple(record for record in records if record.kind == "main"))
    assert len(prefix_score_figure(only_main, only_main.headline()).axes) == 1
    assert "fine-tuned" not in texts(downstream_figure(only_main))


def test_below_each_system_stands_what_it_reaches_with_shuffled_pictures(records: list[RunRecord]) -> None:
    table = downstream_table(Study(tuple(records)))
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    assert [row["runs"] for row in rows][1::2] == ["same system, pictures shuffled"] * 8  # four systems, two decodings
    plain, shuffled, prefix, _ = rows[:4]
    assert (plain["decoding"], prefix["decoding"], prefix["BLEU"]) == ("prompt alone", "with prefix", None)
    main = [r for r in records if (r.kind, r.size, r.base, r.num_steps) == ("main", "micro-gemma-l", "balanced", 1000)]
    for row, ending in ((plain, ""), (shuffled, "/shuffled")):
        for column, measure, scale in (("BLEU", "translation/BLEU", 1), ("ambiguity", "ambiguity/accuracy", 1)):
            found = [
                r.at("every")
                for record in main
                for r in record.results
                if r.measure == f"downstream/{measure}/plain{ending}"
            ]
            assert isinstance(row[column], Estimate)
            assert row[column].value == pytest.approx(scale * sum(found) / 3)
    assert plain["CIDEr, never captioned"].value == pytest.approx(
        100
        * sum(r.at("unseen") for m in main for r in m.results if r.measure == "downstream/captioning/CIDEr/plain")
        / 3
    )


def ambiguity(records: list[RunRecord]) -> Claim:
    study = Study(tuple(records))
    return next(claim for claim in make_claims(study, StudyLaws((), "gemma")) if claim.key == "ambiguity")


def test_the_picture_decides_or_does_not(records: list[RunRecord]) -> None:
    claim = ambiguity(records)
    assert claim.verdict == HOLDS
    own, gain = (condition.measured for condition in claim.conditions)
    assert own.low > 0.8
    assert gain.low > 0.2
    blind = changed(changed(records, "ambiguity/accuracy/plain", 0.5), "ambiguity/accuracy/plain/shuffled", 0.5)
    assert ambiguity(blind).verdict == DOES_NOT


def test_the_page_shows_the_table(records: list[RunRecord], study_folder: Path) -> None:
    from babelcap.report.build import make_tables
    from babelcap.report.page import render_page
    from babelcap.report.study_folder import read_study

    study = read_study(study_folder)
    laws = StudyLaws((), "gemma")
    html = render_page(study, [], laws, [], {}, make_tables(study, [], laws))
    part = html.split("On the benchmarks")[1].split("<h3>Laws")[0]
    assert part.count("same system, pictures shuffled") == 8
