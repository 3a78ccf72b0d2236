"""Which figures a report has, with the words beneath them. A figure that cannot be drawn says why.

Titles say what is shown, never what it shows: that is for the claims to judge, from the records.
"""

from dataclasses import dataclass

from matplotlib.figure import Figure

from babelcap.measures import READING_NAMES, TARGETS
from babelcap.report.downstream import missing_tasks
from babelcap.report.figures.captions import budget_figure, content_figure, prefix_figure
from babelcap.report.figures.downstream import downstream_figure, prefix_score_figure
from babelcap.report.figures.laws import compute_frontier, loss_panels, residual_panels
from babelcap.report.figures.losses import gap_figure, held_out_figure
from babelcap.report.figures.parts import parts_figure
from babelcap.report.figures.predicted import predicted_figure, skill_figure
from babelcap.report.figures.trials import trials_figure
from babelcap.report.study_folder import Cell, Study
from babelcap.report.study_laws import StudyLaws, best_of_sizes, law_table

SHOWN = ("prefix", "content", "budget", "parts", "predicted", "skill", "trials")
FEW_RUNS = "the runs are too few, or vary too little, for a law."
NO_CAPTIONS = "no run of the grid has captions."


@dataclass(frozen=True)
class Drawing:
    name: str
    title: str
    caption: str
    figure: Figure | None
    missing: str = ""

    @property
    def is_shown(self) -> bool:
        """Among those that carry the answer; the others are for who wants to know more."""
        return self.name in SHOWN


def make_drawings(study: Study, laws: StudyLaws) -> list[Drawing]:
    main = study.headline()
    found = [
        *_caption_drawings(study, main),
        *_law_drawings(study, laws),
        *_loss_drawings(study, main),
        *_prediction_drawings(study, laws, main),
    ]
    return sorted(found, key=lambda drawing: not drawing.is_shown)


def _prediction_drawings(study: Study, laws: StudyLaws, main: Cell | None) -> list[Drawing]:
    """Of what a study may have measured; without it they are not missed."""
    found = [
        Drawing(
            "parts",
            "What the loss of a caption is made of.",
            "By the model that is shown: the loss is the sum of the three. Small dots are seeds, lines 95 % intervals.",
            None if main is None else parts_figure(study, main),
        ),
        Drawing(
            "predicted",
            "Predicted before it was run, and measured afterwards.",
            "A dot is a run; on the line the prediction was right. Lines are its 95 % intervals.",
            predicted_figure(study),
        ),
        Drawing(
            "skill",
            "The laws against guesses that need no law.",
            "Each budget predicted from the smaller ones, and each size from the smaller sizes. At 0 the law errs as "
            "much as the better of two guesses (as at the last budget; as the nearest size), at 1 it errs not at all.",
            skill_figure(study, laws),
        ),
        Drawing(
            "trials",
            "What in the data makes it emerge.",
            "One thing changed at a time; in the languages of UC. Ringed: as in the other runs. Small dots are seeds, "
            "lines 95 % intervals.",
            trials_figure(study),
        ),
    ]
    return [drawing for drawing in found if drawing.figure is not None]


def _caption_drawings(study: Study, main: Cell | None) -> list[Drawing]:
    return [
        Drawing(
            "prefix",
            "Language of the captions, with and without prefix.",
            "Share of captions in the language that was asked for, by the largest model and budget with most "
            "seeds. Lines are 95 % intervals.",
            None if main is None else prefix_figure(study, main),
            NO_CAPTIONS,
        ),
        Drawing(
            "prefix_score",
            "What the prefix is worth, before and after fine-tuning.",
            "Scores of captions by the largest model that was fine-tuned: the prefix is needed where the markers are "
            "apart. Training is that before fine-tuning, which captions in every language. Lines are 95 % intervals.",
            None if main is None else prefix_score_figure(study, main),
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
    given = study.readings["UC"]
    for reading, title in ((given, f"Loss ({READING_NAMES[given]}), with the fitted law."),
                           ("raw", "Loss over all tokens, with the fitted law.")):  # fmt: skip
        find = laws.headline_fits if reading == given else lambda form: laws.fits("raw", form)
        fits = find("pst") or find("ps")
        drawings.append(
            Drawing(
                f"loss_{reading}",
                title,
                f"A panel for each quantity of the law; steeper means that it matters more. {_splits_in_words(study)}",
                loss_panels(fits) if fits else None,
                FEW_RUNS,
            )
        )
    best = laws.headline_fits("compute")
    runs = {
        target: best_of_sizes(law_table(study.records, laws.family, study.readings[target], target)) for target in best
    }
    uc = laws.headline("UC")
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
            f"UC {READING_NAMES[given]}. Means over seeds, of the best base of each size and budget. The line ends "
            "at the last run of the frontier; × marks runs beyond it, which the law would have lower.",
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


def _not_measured(tasks: list[str]) -> str:
    return f" Not measured in this study: {'; '.join(tasks)}." if tasks else ""


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
            "downstream",
            "Scores on the benchmarks against the loss.",
            f"A marker is a run; the larger a dot, the more samples. {_splits_in_words(study)} A rank correlation of "
            "−1 means that a run of lower loss always scores higher; in brackets its 95 % interval."
            f"{_not_measured(missing_tasks(study))}",
            downstream_figure(study),
            "fewer than two runs have both a loss and a score.",
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
