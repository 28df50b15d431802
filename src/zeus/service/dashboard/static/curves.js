// What trials reported epoch by epoch: learning curves, power limits and energy; the newest trials first.
import { TRIALS, trialPage } from "./api.js";
import { COLOURS, axisUnit, clearCard, ink, layout, plot, redraw, within } from "./charts.js";
import { button, card, choice, dataTable, el, fillCard, keepFocus, missing, remark } from "./dom.js";
import { ENDINGS, ENERGY, energy, metricText, watts } from "./format.js";

let byEnergy = false, // the axis that a person has chosen
  looked = {}; // which trials of which job a person looks at: how many newer ones there are, and one of them

export function curveCards(cards, job, sizes) {
  if (looked.job !== job.job) looked = { job: job.job, offset: 0, trials: null, number: null };
  const came = job.tries.slice(-TRIALS);
  if (job.trials <= TRIALS && !came.some((t) => t.curve?.length)) return;
  const nodes = [card(cards, "", null, true), card(cards, "", null, true)];
  const draw = () => {
    const shown = looked.trials || came,
      trials = shown.filter((t) => t.curve?.length);
    for (const node of nodes) clearCard(node);
    drawCurves(nodes[0], job, sizes, trials, again);
    turning(nodes[0], job, shown, again);
    drawEpochs(nodes[1], job, trials, again);
  };
  const again = async (offset = looked.offset) => {
    if (offset !== looked.offset) {
      const { trials } = await trialPage(job, { offset, curves: true });
      looked = { ...looked, offset, trials: offset ? trials.toReversed() : null };
    }
    keepFocus(() => {
      draw();
      redraw();
    }, true);
  };
  draw();
}

function turning(node, job, shown, again) {
  if (job.trials <= TRIALS) return;
  const turn = (name, to, disabled) =>
    button(name, () => again(to).catch((wrong) => remark(node, wrong.message)), { id: `curves-${name}`, disabled });
  const next = looked.offset + TRIALS;
  const pages = [
    turn("Later", Math.max(0, looked.offset - TRIALS), looked.offset === 0),
    `trials ${shown[0]?.number} to ${shown.at(-1)?.number}`,
    turn("Earlier", next, next >= job.trials),
  ];
  node.append(el("div", { class: "pages" }, pages));
}

function drawCurves(node, job, sizes, trials, again) {
  fillCard(node, "Learning curves", "The metric of each trial. Dotted: the target.");
  if (!trials.length) {
    remark(node, "None of these trials has reported an epoch.");
    return;
  }
  const pick = (value) => {
    byEnergy = value;
    again();
  };
  const axes = [
    [false, "by epoch"],
    [true, "by energy"],
  ];
  node.querySelector(".head").append(choice("Axis", axes, byEnergy, pick));
  const unit = axisUnit(
    trials.map((t) => usedUntil(t.curve).at(-1)),
    ENERGY,
  );
  const place = (t) => (byEnergy ? within(usedUntil(t.curve), unit) : t.curve.map((p) => p.epoch));
  const traces = trials.map((t, i) => ({
    x: place(t),
    y: t.curve.map((p) => p.metric),
    mode: t.curve.length > 1 ? "lines+markers" : "markers",
    name: t.ending === "open" ? `trial ${t.number}, running` : `size ${t.batch_size}`,
    legendgroup: t.ending === "open" ? `trial ${t.number}` : `size ${t.batch_size}`,
    showlegend:
      t.ending === "open" || trials.findLast((o) => o.batch_size === t.batch_size && o.ending !== "open") === t,
    opacity: 0.35 + (0.65 * (i + 1)) / trials.length,
    line: { color: sizes[t.batch_size] || COLOURS[i % COLOURS.length], width: t.ending === "open" ? 3 : 1.8 },
    marker: { size: 5, symbol: t.ending === "converged" ? "circle" : t.ending === "open" ? "circle-open" : "x" },
    text: t.curve.map((p) => `trial ${t.number}, epoch ${p.epoch}: ${metricText(p.metric)}, ${endText(t)}`),
    hovertemplate: "%{text}<extra></extra>",
  }));
  const target = job.spec.target_metric,
    line = { y0: target, y1: target, xref: "paper", x0: 0, x1: 1, line: { color: ink("--soft"), dash: "dot" } };
  const x = byEnergy ? `energy since the trial began, ${unit.name}` : "epoch";
  plot(node, `Learning curves of ${job.job}`, traces, () => ({
    ...layout({ title: x, rangemode: "tozero" }, { title: "metric" }),
    shapes: missing(target) ? [] : [line],
    showlegend: true,
  }));
  dataTable(node, CURVE_COLUMNS, trials.toReversed().flatMap(curveRows));
}
const endText = (t) => ENDINGS[t.ending] || t.ending;

// Joules from the beginning of the trial to the end of each epoch. Very long curves hold every other epoch alone.
function usedUntil(curve) {
  let sum = 0,
    before = 0;
  return curve.map((p) => {
    if (sum === null || missing(p.joules)) sum = null;
    else sum += p.joules * (p.epoch - before);
    before = p.epoch;
    return sum;
  });
}

const curveRows = (t) => t.curve.map((p, i) => ({ ...p, trial: t.number, size: t.batch_size, last: !t.curve[i + 1] }));
const CURVE_COLUMNS = [
  { name: "Trial", num: true, show: (r) => String(r.trial) },
  { name: "Batch size", num: true, show: (r) => String(r.size) },
  { name: "Epoch", num: true, show: (r) => String(r.epoch) },
  { name: "Metric", num: true, show: (r) => metricText(r.metric) },
  { name: "Energy", num: true, show: (r) => energy(r.joules) },
  { name: "Limit", num: true, show: (r) => watts(r.limit_watts) },
];

// One of these trials: the latest, or the one that was chosen.
function drawEpochs(node, job, some, again) {
  fillCard(node, "Power limit and energy by epoch", "Bars: the energy of an epoch. Line: the power limit it ended at.");
  const trials = some.filter((t) => t.curve.some((p) => !missing(p.joules) || !missing(p.limit_watts)));
  if (!trials.length) {
    remark(node, "None of these trials has reported energy or a power limit.");
    return;
  }
  const trial = trials.find((t) => t.number === looked.number) || trials.at(-1);
  const change = (event) => {
    looked.number = Number(event.target.value);
    again();
  };
  const option = (t) =>
    el("option", { value: t.number, selected: t === trial }, `${t.number}, size ${t.batch_size}, ${endText(t)}`);
  const options = trials.toReversed().map(option);
  node
    .querySelector(".head")
    .append(el("label", {}, "Trial ", el("select", { id: "epochs-of", on: { change } }, options)));
  const { curve } = trial,
    x = curve.map((p) => p.epoch),
    unit = axisUnit(
      curve.map((p) => p.joules),
      ENERGY,
    );
  const bars = {
    x,
    y: within(
      curve.map((p) => p.joules),
      unit,
    ),
    type: "bar",
    name: "energy",
    marker: { color: ink("--accent"), opacity: 0.55 },
    text: curve.map((p) => `epoch ${p.epoch}: ${energy(p.joules)}`),
    textposition: "none",
    hovertemplate: "%{text}<extra></extra>",
  };
  const limits = {
    x,
    y: curve.map((p) => p.limit_watts),
    yaxis: "y2",
    mode: "lines+markers",
    name: "power limit",
    line: { color: ink("--warm"), shape: "hvh", width: 2 },
    hovertemplate: "epoch %{x}: %{y} W<extra></extra>",
  };
  plot(node, `Energy and power limit by epoch of trial ${trial.number} of ${job.job}`, [bars, limits], () => {
    const shape = layout({ title: "epoch" }, { title: `energy, ${unit.name}`, rangemode: "tozero" });
    const right = { ...shape.yaxis, title: { text: "power limit, watts" }, overlaying: "y", side: "right" };
    return {
      ...shape,
      yaxis2: { ...right, showgrid: false, rangemode: "tozero", tickmode: "auto", automargin: false },
      margin: { ...shape.margin, r: 56 },
    };
  });
  const step = curve.length > 1 ? curve[1].epoch - curve[0].epoch : 1;
  if (step > 1) remark(node, `One of ${step} epochs is shown.`);
  if (curve.every((p) => missing(p.limit_watts))) remark(node, "The power limit of this trial was not seen.");
}
