// What one job used, by recurrence and by batch size.
import { SYMBOLS, axisUnit, categories, firstOf, ink, layout, plain, plot, recurrenceAxis, within } from "./charts.js";
import { button, card, dataTable, el, missing, pill } from "./dom.js";
import { ENDINGS, ENERGY, count, duration, energy, number, watts } from "./format.js";

const MORE = 1000; // recurrences that are asked for at once

// `more` asks for so many earlier recurrences.
export function costCard(cards, job, sizes, more) {
  const node = card(
    cards,
    "Cost by recurrence",
    "Cost is η·energy + (1−η)·maximum power·time, over all trials of " +
      "a recurrence. The colour is the batch size, the shape says how it ended.",
    true,
  );
  const left = job.recurrences - job.history.length;
  if (left > 0)
    node.append(
      el(
        "p",
        { class: "note pages" },
        `Here and below: the latest ${job.history.length} of ${count(job.recurrences, "recurrence")}.`,
        button(`Show ${Math.min(left, MORE)} earlier`, () => more(MORE), { id: "more-recurrences" }),
      ),
    );
  const known = job.history.filter((r) => !missing(r.cost)),
    most = Math.max(2, job.recurrences);
  const unit = axisUnit([...known.map((r) => r.cost), job.default?.cost], ENERGY);
  const numbers = (rows) => rows.map((r) => r.number),
    costs = (rows) =>
      within(
        rows.map((r) => r.cost),
        unit,
      );
  const traces = [];
  if (job.default && !missing(job.default.cost))
    traces.push({
      x: [firstOf(job), most],
      y: within([job.default.cost, job.default.cost], unit),
      mode: "lines",
      name: "default",
      line: { dash: "dash", color: ink("--soft") },
      hoverinfo: "skip",
    });
  traces.push({
    x: numbers(known),
    y: costs(known),
    mode: "lines",
    line: { color: ink("--line"), width: 1.5 },
    showlegend: false,
    hoverinfo: "skip",
  });
  const text = (r) =>
    `recurrence ${r.number}: batch size ${r.batch_size}, ${plain(ENDINGS[r.end] || r.end)}<br>` +
    `cost ${energy(r.cost)}, energy ${energy(r.joules)}, ${duration(r.seconds)}, ` +
    count(r.tries, "trial");
  for (const size of new Set(known.map((r) => r.batch_size))) {
    const rows = known.filter((r) => r.batch_size === size),
      symbol = rows.map((r) => SYMBOLS[r.end] || "circle");
    traces.push({
      x: numbers(rows),
      y: costs(rows),
      mode: "markers",
      name: `size ${size}`,
      marker: { size: 9, color: sizes[size] || ink("--soft"), symbol },
      text: rows.map(text),
      hovertemplate: "%{text}<extra></extra>",
    });
  }
  plot(node, `Cost of ${count(known.length, "recurrence")} of ${job.job}`, traces, () =>
    layout(recurrenceAxis(most, firstOf(job)), { title: `cost, ${unit.name}`, rangemode: "tozero" }),
  );
  dataTable(
    node,
    [
      { name: "Recurrence", num: true, show: (r) => String(r.number) },
      { name: "Ended", show: (r) => pill(r.end) },
      { name: "Number of trials", num: true, show: (r) => String(r.tries) },
      { name: "Batch size", num: true, show: (r) => String(r.batch_size) },
      { name: "Epochs", num: true, show: (r) => number(r.epochs) },
      { name: "Cost", num: true, show: (r) => energy(r.cost) },
      { name: "Energy", num: true, show: (r) => energy(r.joules) },
      { name: "Time", num: true, show: (r) => duration(r.seconds) },
    ],
    job.history,
  );
}

// The default of each recurrence's own time; a service that does not tell it has one for all.
export function energyCard(cards, job) {
  const dated = job.history.some((r) => !missing(r.default_joules));
  const node = card(
    cards,
    "Energy by recurrence",
    dated
      ? "Energy of all trials of a recurrence, compared with the default for the data of that time."
      : "Energy of all trials of a recurrence, compared with the default.",
    true,
  );
  const rows = job.history.filter((r) => !missing(r.joules) && r.end !== "open"),
    most = Math.max(2, job.recurrences);
  const usual = (r) => (dated ? r.default_joules : job.default?.joules);
  const basis = (r) => ((dated ? r.default_basis : job.default?.basis) || "").replaceAll("_", " ");
  const unit = axisUnit([...rows.map((r) => r.joules), ...rows.map(usual)], ENERGY),
    x = rows.map((r) => r.number);
  const text = (r) => `recurrence ${r.number}: ${energy(r.joules)}, ${duration(r.seconds)}`;
  const usualText = (r) => `default: ${energy(usual(r))}${basis(r) ? ` (${plain(basis(r))})` : ""}`;
  const traces = [
    {
      x,
      y: within(
        rows.map((r) => r.joules),
        unit,
      ),
      mode: "lines+markers",
      name: "used",
      line: { color: ink("--accent"), width: 1.5 },
      text: rows.map(text),
      hovertemplate: "%{text}<extra></extra>",
    },
  ];
  if (rows.some((r) => !missing(usual(r))))
    traces.push({
      x,
      y: within(rows.map(usual), unit),
      mode: "lines",
      name: "default",
      text: rows.map(usualText),
      line: { color: ink("--soft"), dash: "dash", shape: "hvh" },
      hovertemplate: "%{text}<extra></extra>",
    });
  plot(node, `Energy of ${count(rows.length, "recurrence")} of ${job.job}`, traces, () =>
    layout(recurrenceAxis(most, firstOf(job)), { title: `energy, ${unit.name}`, rangemode: "tozero" }),
  );
  if (dated)
    dataTable(
      node,
      [
        { name: "Recurrence", num: true, show: (r) => String(r.number) },
        { name: "Energy", num: true, show: (r) => energy(r.joules) },
        { name: "Default energy", num: true, show: (r) => energy(r.default_joules) },
        { name: "Time", num: true, show: (r) => duration(r.seconds) },
        { name: "Default time", num: true, show: (r) => duration(r.default_seconds) },
        { name: "Basis of the default", show: basis },
      ],
      job.history,
    );
}

export function beliefCard(cards, job, sizes) {
  const node = card(
    cards,
    "Belief about each batch size",
    "The mean cost of a run. The bar is one standard deviation of the belief about that mean.",
  );
  const known = job.sizes.filter((s) => !missing(s.mean)),
    unit = axisUnit(
      known.map((s) => s.mean),
      ENERGY,
    );
  const symbol = known.map((s) => (s.standing === "offered" ? "circle" : "x"));
  const text = (s) =>
    `batch size ${s.batch_size}: ${plain(s.standing)}, ${s.converged} of ${s.runs} runs reached ` +
    `the target<br>cost ${energy(s.mean)}`;
  plot(
    node,
    `Belief about the cost of each batch size of ${job.job}`,
    [
      {
        x: known.map((s) => String(s.batch_size)),
        y: within(
          known.map((s) => s.mean),
          unit,
        ),
        mode: "markers",
        error_y: {
          type: "data",
          array: within(
            known.map((s) => s.spread || 0),
            unit,
          ),
          color: ink("--soft"),
        },
        marker: { size: 11, color: known.map((s) => sizes[s.batch_size]), symbol },
        text: known.map(text),
        hovertemplate: "%{text}<extra></extra>",
      },
    ],
    () => layout(categories("batch size", job.spec.batch_sizes), { title: `cost, ${unit.name}`, rangemode: "tozero" }),
  );
  dataTable(
    node,
    [
      { name: "Batch size", num: true, show: (s) => String(s.batch_size) },
      { name: "Standing", show: (s) => s.standing },
      { name: "Reached", num: true, show: (s) => `${s.converged} of ${s.runs}` },
      { name: "Mean cost", num: true, show: (s) => energy(s.mean) },
      { name: "Spread", num: true, show: (s) => energy(s.spread) },
      { name: "Limit", num: true, show: (s) => watts(s.limit_watts) },
    ],
    job.sizes,
  );
}
