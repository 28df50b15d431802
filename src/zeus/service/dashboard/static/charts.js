// Plots, and the axes and colours that they share.
import { button, el, main, missing } from "./dom.js";
import { unitOf } from "./format.js";
import { savePicture } from "./saving_files.js";

export const SYMBOLS = { converged: "circle", failed: "x", open: "circle-open", unfinished: "diamond-open" };
export const COLOURS = [
  "#0072b2",
  "#e69f00",
  "#009e73",
  "#cc79a7",
  "#56b4e9",
  "#d55e00",
  "#8a7f00",
  "#7a52c7",
  "#666666",
  "#a05a2c",
];

let drawn = [];
export function ink(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}
const narrow = () => window.innerWidth < 720;

export function layout(x, y) {
  const line = ink("--line");
  const axis = { gridcolor: line, zerolinecolor: line, linecolor: line, automargin: true };
  const bottom = { yref: "container", y: 0, yanchor: "bottom", xref: "container", x: 0.5, xanchor: "center" };
  const named = (one) => ({ ...axis, ...one, title: { text: one.title } });
  return {
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    hovermode: "closest",
    font: { color: ink("--ink"), family: "system-ui, sans-serif", size: 12 },
    margin: { l: 56, r: 12, t: 8, b: narrow() ? 110 : 78 },
    legend: { orientation: "h", ...bottom },
    xaxis: named(x),
    yaxis: named(y),
  };
}

// Recurrences are whole, so their ticks are.
export function wholeStep(span) {
  const room = narrow() ? 5 : 12;
  for (let decade = 1; ; decade *= 10) for (const n of [1, 2, 5]) if (span / (n * decade) <= room) return n * decade;
}
export function recurrenceAxis(most, first = 1) {
  const margin = Math.max(0.5, 0.02 * (most - first)),
    range = [first - margin, most + margin];
  return { title: "recurrence", range, tick0: 0, dtick: wholeStep(most - first), tickformat: "d" };
}
export const firstOf = (job) => job.history[0]?.number ?? 1;
export function categories(title, values) {
  return { title, type: "category", categoryorder: "array", categoryarray: values.map(String) };
}

// Limits are set in steps of 25 W.
export function limitAxis(values) {
  const least = Math.min(...values),
    most = Math.max(...values),
    span = most - least;
  const dtick = span <= 200 ? 25 : span <= 500 ? 50 : 100;
  return { title: "power limit, watts", range: [least - dtick, most + dtick], tick0: 0, dtick };
}

export function plot(card, label, traces, shape) {
  const box = el("div", { class: "plot", role: "img", "aria-label": label });
  const save = () => savePicture(box, label, ink("--card"));
  card.querySelector("h2").after(button("PNG", save, { class: "small", "aria-label": `Save as PNG: ${label}` }));
  card.append(box);
  const zoomed = (change) => {
    if (!("xaxis.range[0]" in change || "xaxis.autorange" in change)) return;
    const [from, to] = box.layout.xaxis.range;
    Plotly.relayout(box, { "xaxis.dtick": wholeStep(to - from) });
  };
  const draw = () => {
    if (!window.Plotly) return;
    const first = !box.on;
    Plotly.react(box, traces, shape(), { displayModeBar: false, responsive: true });
    if (first && box.layout.xaxis.tickformat === "d") box.on("plotly_relayout", zoomed);
  };
  drawn.push({ box, draw });
  return box;
}
export function redraw() {
  for (const one of drawn) if (one.box.isConnected) one.draw();
}
export function clear() {
  forget(drawn);
  main.replaceChildren();
}
// Before one card is drawn anew.
export function clearCard(card) {
  forget(drawn.filter((one) => card.contains(one.box)));
  card.replaceChildren();
}
function forget(some) {
  for (const one of some) if (window.Plotly) Plotly.purge(one.box);
  drawn = drawn.filter((one) => !some.includes(one));
}
export function colours(sizes) {
  return Object.fromEntries([...sizes].sort((a, b) => a - b).map((size, i) => [size, COLOURS[i % COLOURS.length]]));
}
// Plotly reads a few tags in its labels; what users typed must not be among them.
export function plain(text) {
  return String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
}

// The unit for an axis, from the largest of its values.
export function axisUnit(values, units) {
  return unitOf(Math.max(0, ...values.filter((v) => !missing(v))), units);
}
export const within = (values, unit) => values.map((v) => (missing(v) ? null : v / unit.factor));
