"""Which figures a report has, with the words beneath them. A figure that cannot be drawn says why.

Titles say what is shown, never what it shows: that is for the claims to judge, from the records.
"""

from dataclasses import dataclass

from matplotlib.figure import Figure

from babelcap.measures import TARGETS
from babelcap.report.figures.captions import budget_figure, content_figure, prefix_figure
from babelcap.report.figures.laws import compute_frontier, loss_panels, residual_panels
from babelcap.report.figures.losses import content_against_loss, gap_figure, held_out_figure
from babelcap.report.study_folder import Cell, Study
from babelcap.report.study_laws import StudyLaws, best_of_sizes, law_table

FEW_RUNS = "the runs are too few, or vary too little, for a law."
NO_CAPTIONS = "no run of the grid has captions."


@dataclass(frozen=True)
class Drawing:
    name: str
    title: str
    caption: str
    figure: Figure | None
    missing: str = ""


def make_drawings(study: Study, laws: StudyLaws) -> list[Drawing]:
    main = study.headline()
    return [*_caption_drawings(study, main), *_law_drawings(study, laws), *_loss_drawings(study, main)]


def _caption_drawings(study: Study, main: Cell | None) -> list[Drawing]:
    return [
        Drawing(
            "prefix",
            "Language of the captions, with and without prefix.",
            "Share of captions in the language that was asked for, by the largest model at its largest budget. Lines "
            "are 95 % intervals.",
            None if main is None else prefix_figure(study, main),
            NO_CAPTIONS,
        ),
        Drawing(
            "content",
            "What the captions say, against the truth.",
            "Share of a scene’s objects that are named, and of the stated colours and relations (with positions) that "
            "are right; with prefix, but for the fine-tuned model. A caption in the wrong language names nothing. "
            "Chance is what true captions of other pictures reach, for relations a blind guess between opposites.",
            None if main is None else content_figure(study, main),
            NO_CAPTIONS,
        ),
        Drawing(
            "budget",
            "Captioning in unseen languages, by samples and model.",
            "Mean over the languages never captioned in. Lines are 95 % intervals.",
            None if main is None else budget_figure(study, main),
            NO_CAPTIONS,
        ),
    ]


def _law_drawings(study: Study, laws: StudyLaws) -> list[Drawing]:
    drawings = []
    for reading, title in (
        ("conditioned", "Loss after the prefix, with the fitted law."),
        ("raw", "Raw loss, tokens of the prefix included, with the fitted law."),
    ):
        form = "pst" if laws.fits(reading, "pst") else "ps"
        fits = laws.fits(reading, form)
        drawings.append(
            Drawing(
                f"loss_{reading}",
                title,
                f"A panel for each quantity of the law; steeper means that it matters more. {_splits_in_words(study)}",
                loss_panels(fits) if fits else None,
                FEW_RUNS,
            )
        )
    best = laws.fits("conditioned", "compute")
    runs = {target: best_of_sizes(law_table(study.records, laws.family, "conditioned", target)) for target in best}
    uc = laws.best("conditioned", "UC")
    return [
        *drawings,
        Drawing(
            "held_out",
            "The largest budget, predicted and measured.",
            "Each dot is a run of the largest budget; the law was fitted to the smaller budgets alone.",
            held_out_figure(laws),
            FEW_RUNS,
        ),
        Drawing(
            "compute",
            "Loss against compute.",
            "Loss after the prefix: means over seeds, of the best base of each size and budget. The line ends at the "
            "last run of the frontier; × marks runs beyond it, which the law would have lower.",
            compute_frontier(best, runs) if best else None,
            FEW_RUNS,
        ),
        Drawing(
            "residuals_UC",
            "What the law of unseen captioning leaves over.",
            "A pattern would mean that the form is wrong; dots spread evenly around zero are noise.",
            residual_panels(uc.fitted) if uc is not None and uc.fitted is not None else None,
            FEW_RUNS,
        ),
    ]


def _splits_in_words(study: Study) -> str:
    """UC: captions in Spanish and Chinese, never trained on. ..."""
    coverage, parts = study.coverage, []
    for target in TARGETS:
        if target not in coverage.splits:
            continue
        pairs = coverage.split(target)
        names = [study.language_name(pair.language) for pair in pairs]
        trained = "trained on" if coverage.is_seen(pairs[0]) else "never trained on"
        parts.append(f"{target}: {coverage.task(pairs[0].task).gives} {' and '.join(names)}, {trained}.")
    return " ".join(parts)


def _loss_drawings(study: Study, main: Cell | None) -> list[Drawing]:
    return [
        Drawing(
            "content_loss",
            "Content of the captions against the loss.",
            "Objects right in the languages of UC, against the UC loss after the prefix.",
            content_against_loss(study),
            "fewer than two runs have both a loss and captions.",
        ),
        Drawing(
            "picture_gap",
            "What another picture costs.",
            "How much the loss rises when the picture is another one. At zero the picture is not used; the loss alone "
            "also falls by learning the language.",
            None if main is None else gap_figure(study, main),
            "no run has its loss with shuffled pictures.",
        ),
    ]
