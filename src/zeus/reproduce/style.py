"""The look of all pictures: sizes, and colours that colour-blind people can tell apart (Okabe and Ito)."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from zeus.reproduce.panel import Panel

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BLUE, ORANGE, GREEN, RED, SKY, PURPLE, GREY, BLACK = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#D55E00",
    "#56B4E9",
    "#CC79A7",
    "#8A8A8A",
    "#222222",
)
METHODS: Final = {"Zeus": BLUE, "Grid Search": ORANGE, "Grid Search, failures free": RED, "Default": GREY}
WORKLOADS: Final = {
    "DeepSpeech2": (BLUE, "o"),
    "BERT-QA": (ORANGE, "s"),
    "BERT-SA": (GREEN, "^"),
    "ResNet-50": (RED, "D"),
    "ShuffleNet-v2": (SKY, "v"),
    "NeuMF": (PURPLE, "P"),
    "Geometric mean": (BLACK, "*"),
}
GPUS: Final = {"a40": "A40", "v100": "V100", "rtx6000": "RTX6000", "p100": "P100", "h200": "H200"}
CARDS: Final = {"A40": ORANGE, "V100": BLUE, "RTX6000": GREEN, "P100": PURPLE}
DPI: Final = 168  # twice the pixels that the report shows, for sharp letters on any screen
QUICK_DPI: Final = 50
SETTINGS: Final[dict[Any, Any]] = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.6,
    "legend.frameon": True,
    "legend.facecolor": "white",
    "legend.edgecolor": "none",
    "legend.framealpha": 0.85,
    "legend.fontsize": 8.5,
    "lines.linewidth": 1.6,
    "lines.markersize": 4.5,
    "figure.constrained_layout.use": True,
}


def picture(panel: Panel, draw: Callable[[Axes, Panel], None], dpi: int = DPI) -> bytes:
    """Draw the panel as PNG. The same panel gives the same bytes, as no date is written."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(SETTINGS):
        figure = Figure(figsize=panel.size, dpi=dpi)
        axes = figure.add_subplot()
        axes.set_title(panel.title, wrap=True)
        draw(axes, panel)
        file = io.BytesIO()
        figure.savefig(file, format="png", metadata={"Software": None})
    return _small(file)


def _small(file: io.BytesIO) -> bytes:
    """The same picture with at most 256 colours: nobody sees the difference, and it takes a third of the bytes."""
    from PIL import Image

    small = io.BytesIO()
    Image.open(file).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(small, "png", optimize=True)
    return small.getvalue()
