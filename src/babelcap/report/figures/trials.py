"""Trials: what captions in unseen languages come to when one thing is changed."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import PercentFormatter

from babelcap.measures import Variant
from babelcap.report.figures.captions import draw_seeds
from babelcap.report.figures.style import GREY, drawing, number
from babelcap.report.study_folder import Study, share
from babelcap.report.trials import Trial, find_trials

# What is shown: with the prefix what captions say, without it their language.
SHOWN: tuple[tuple[str, Variant, str, str, str], ...] = (
    ("objects", "prefix", "objects right, prefix", "#0072b2", "o"),
    ("language", "plain", "right language, prompt alone", "#d55e00", "s"),
)
COLUMNS = 3
LEAST_SEEDS = 3  # of an interval that is drawn: that of two seeds spans the panel, their dots say more


def trials_figure(study: Study) -> Figure | None:
    """A panel for each thing tried, a dot for each seed; the value that the study's own runs have is ringed."""
    trials = [trial for trial in find_trials(study) if len(trial.tried) > 1]
    if not trials:
        return None
    num_rows = -(-len(trials) // COLUMNS)
    with drawing(0.6 + 2.75 * min(COLUMNS, len(trials)), 0.7 + 2.5 * num_rows) as figure:
        axes = figure.subplots(num_rows, min(COLUMNS, len(trials)), squeeze=False, sharey=True).ravel()
        several = len({(trial.size, trial.samples) for trial in trials if trial.name != "tuning_pictures"}) > 1
        for panel, trial in zip(axes, trials, strict=False):
            _draw_trial(panel, trial)
            note = f"\n{trial.size.removeprefix('micro-')}, {number(trial.samples)} samples" if several else ""
            panel.set_title(trial.title + note, fontsize=9)
        for panel in axes[len(trials) :]:
            panel.set_axis_off()
        axes[0].set_ylim(-0.03, 1.05)
        axes[0].yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        handles = [Line2D([], [], marker=marker, color=colour, label=label) for _, _, label, colour, marker in SHOWN]
        figure.legend(handles=handles, loc="outside upper left", ncols=2, frameon=False, labelcolor="linecolor")
    return figure


def _draw_trial(panel: Axes, trial: Trial) -> None:
    places = range(len(trial.tried))
    for name, variant, _, colour, marker in SHOWN:
        found = [
            (place, known, tried.is_baseline)
            for place, tried in zip(places, trial.tried, strict=True)
            if (known := share(tried.cell, name, variant, "UC")) is not None and known.is_number
        ]
        for place, known, is_baseline in found:
            if known.low is not None and known.high is not None and len(known.seeds) >= LEAST_SEEDS:
                panel.plot([place, place], [known.low, known.high], color=colour, linewidth=1, alpha=0.45)
            draw_seeds(panel, place, known, colour)
            if is_baseline:
                panel.plot(place, known.value, "o", color=GREY, markersize=11, markerfacecolor="none", linewidth=0.8)
        panel.plot([place for place, _, _ in found], [known.value for _, known, _ in found], f"-{marker}",
                   color=colour, markersize=5)  # fmt: skip
    panel.set_xticks(list(places), [tried.value for tried in trial.tried])
    panel.margins(x=0.12)
