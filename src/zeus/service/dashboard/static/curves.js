// What trials reported epoch by epoch: learning curves, power limits and energy.
import { COLOURS, axisUnit, clearCard, ink, layout, plot, redraw, within } from "./charts.js";
import { card, choice, dataTable, el, fillCard, missing, remark } from "./dom.js";
import { ENDINGS, ENERGY, energy, metricText, watts } from "./format.js";

const NEWEST = 12; // trials whose curves are drawn
let byEnergy = false, // the axis that a person has chosen
  epochsOf = null; // the trial that a person has chosen, with its job

const withCurve = (job) => job.tries.filter((t) => t.curve?.length);

export function curveCard(cards, job, sizes) {
  const trials = withCurve(job).slice(-NEWEST);
  if (!trials.length) return;
  const node = card(cards, "", null, true);
  const draw = () => {
    clearCard(node);
    fillCard(node, "Learning curves", `The metric of the latest ${trials.length} trials. Dotted: the target.`);
    const pick = (value) => {
      byEnergy = value;
      draw();
      redraw();
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
      showlegend: t.ending === "open" || trials.find((o) => o.batch_size === t.batch_size && o.ending !== "open") === t,
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
  };
  draw();
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

// The latest trial, or the one that was chosen.
export function epochCard(cards, job) {
  const trials = withCurve(job).filter((t) => t.curve.some((p) => !missing(p.joules) || !missing(p.limit_watts)));
  if (!trials.length) return;
  const node = card(cards, "", null, true);
  const draw = () => {
    clearCard(node);
    const chosen = epochsOf?.job === job.job ? trials.find((t) => t.number === epochsOf.number) : null;
    drawEpochs(node, job, trials, chosen || trials.at(-1), (number) => {
      epochsOf = { job: job.job, number };
      draw();
      redraw();
    });
  };
  draw();
}

function drawEpochs(node, job, trials, trial, pick) {
  fillCard(node, "Power limit and energy by epoch", "Bars: the energy of an epoch. Line: the power limit it ended at.");
  const change = (event) => pick(Number(event.target.value));
  const option = (t) =>
    el("option", { value: t.number, selected: t === trial }, `${t.number}, size ${t.batch_size}, ${endText(t)}`);
  const options = trials.slice(-100).reverse().map(option);
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
  if (curve.every((p) => missing(p.limit_watts))) remark(node, "The power limit of this trial was not seen.");
}
