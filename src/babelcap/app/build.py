"""The web app put together: tabs on one page, mounted in a server that reads no file but those it was given."""

import atexit
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"  # before Gradio is imported, which asks for it then
os.environ.setdefault("GRADIO_TEMP_DIR", tempfile.mkdtemp(prefix="babelcap-app-"))

import gradio as gr
from fastapi import FastAPI

from babelcap.app.context import AppContext
from babelcap.app.engine import Engine
from babelcap.app.model_choice import Chosen
from babelcap.app.samples import draw_samples
from babelcap.app.tabs.caption import caption_tab
from babelcap.app.tabs.dataset import dataset_tab
from babelcap.app.tabs.law import law_tab
from babelcap.app.tabs.study import study_tab
from babelcap.app.tabs.translate import translate_tab
from babelcap.errors import UserError
from babelcap.pages import render
from babelcap.version import VERSION

HERE = Path(__file__).parent
DEFAULT_STUDY = Path("studies/micro")
TABS = {
    "Caption": caption_tab,
    "Translate": translate_tab,
    "Law": law_tab,
    "Study": study_tab,
    "Dataset": dataset_tab,
}
MAX_QUEUED = 64
HOUR = 3600
FONTS = ("system-ui", "-apple-system", "Segoe UI", "Roboto", "Noto Sans", "sans-serif")
MONO = ("ui-monospace", "SFMono-Regular", "Menlo", "monospace")


@dataclass(frozen=True)
class AppOptions:
    chosen: Chosen
    study: Path | None = None
    corpus: Path | None = None


def make_app(engine: Engine, options: AppOptions) -> FastAPI:
    own = Path(os.environ["GRADIO_TEMP_DIR"])
    own.mkdir(parents=True, exist_ok=True)
    atexit.register(shutil.rmtree, own, ignore_errors=True)
    study = options.study or (DEFAULT_STUDY if DEFAULT_STUDY.is_dir() else None)
    for name, folder in (("study", options.study), ("corpus", options.corpus)):
        if folder is not None and not folder.is_dir():
            raise UserError(f"{name}: {folder} is no folder")
    context = AppContext(engine, options.chosen, study, options.corpus, draw_samples(own))
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    return gr.mount_gradio_app(
        app,
        make_blocks(context),
        path="/",
        server_name="127.0.0.1",
        footer_links=[],
        run_history=False,
        allowed_paths=[],
        blocked_paths=[str(Path.home())],
        show_error=False,  # what is ours to answer for goes to the log, not to the page
        max_file_size=engine.limits.max_upload_bytes,
        ssr_mode=False,
        pwa=False,
        mcp_server=False,
        theme=make_theme(),
        css=_own("app.css"),
        head=f"<style>{_own('shell.css')}</style><script>{_own('app.js')}</script>",
    )


def _own(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")


def make_theme() -> gr.themes.Base:
    """System fonts: nothing is loaded from elsewhere."""
    theme = gr.themes.Base(
        primary_hue="orange", neutral_hue="slate", font=list(FONTS), font_mono=list(MONO), radius_size="lg"
    )
    # Dark enough to be read by everybody: Gradio's own grey has a contrast of 2.6.
    return theme.set(
        block_label_text_color="*neutral_600",
        block_title_text_color="*neutral_600",
        input_border_width="1px",
        input_border_color="*neutral_400",
        input_border_color_dark="*neutral_500",
        body_text_color_subdued="*neutral_600",
        body_text_color_subdued_dark="*neutral_300",
        button_primary_background_fill="*primary_700",
        button_primary_background_fill_hover="*primary_800",
        button_primary_background_fill_dark="*primary_700",
    )


def make_blocks(context: AppContext) -> gr.Blocks:
    with gr.Blocks(title="babelcap", analytics_enabled=False, fill_width=True, delete_cache=(HOUR, HOUR)) as blocks:
        gr.HTML(
            render("app/header.html.jinja", version=VERSION, chosen=context.chosen, model=_size(context)),
            padding=False,
            elem_id="header",
        )
        with gr.Tabs(elem_id="tabs"):
            for name, make in TABS.items():
                with gr.Tab(name, id=name.lower(), render_children=True):
                    make(context)
    blocks.queue(max_size=MAX_QUEUED, default_concurrency_limit=2, api_open=False)
    return blocks


def _size(context: AppContext) -> str:
    num_parameters = context.engine.pipeline.model.num_parameters()
    return f"{num_parameters / 1e6:,.1f} million parameters, {context.engine.size_px} px"
