"""Draws Figures 1, 5, 6 and 7 of the paper for the traces of the H200, in the same way as `zeus reproduce` does.

    python benchmarks/h200/figures.py [--traces benchmarks/h200/traces] [--out benchmarks/h200/figures] [--seeds 20]

The traces hold one power limit, so Figure 1 shows the batch size alone.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from zeus.reproduce import style
from zeus.reproduce.figures import mechanism, motivation, performance
from zeus.reproduce.study import Study
from zeus.simulate.traces.published import load

HERE = Path(__file__).parent
GPU = "h200"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=Path, default=HERE / "traces")
    parser.add_argument("--out", type=Path, default=HERE / "figures")
    parser.add_argument("--seeds", type=int, default=20)
    options = parser.parse_args()
    workloads = load(options.traces, GPU)
    study = Study({GPU: workloads}, {GPU: workloads}, options.traces, options.traces, options.seeds)
    saved = motivation.knobs_panel(workloads, "figure_01", "H200")
    knobs = ("Default", "Batch size opt.")
    panels = [(motivation.draw_knobs, saved.only(row for row in saved.rows if row[1] in knobs))]
    panels += [
        (mechanism.draw_size_curve, mechanism.size_panel(one, f"figure_05_{name}")) for name, one in workloads.items()
    ]
    panels += [(performance.draw_ratios, panel) for panel in performance.ratio_panels(study, GPU, "figure_06")]
    panels += [
        (performance.draw_regret, performance.regret_panel(study, name, f"figure_07_{name}", GPU)) for name in workloads
    ]
    options.out.mkdir(parents=True, exist_ok=True)
    for draw, panel in panels:
        shown = replace(panel, title=panel.title if "H200" in panel.title else f"{panel.title}, H200")
        (options.out / f"{panel.name}.png").write_bytes(style.picture(shown, draw, dpi=110))
        print(options.out / f"{panel.name}.png")


if __name__ == "__main__":
    main()
