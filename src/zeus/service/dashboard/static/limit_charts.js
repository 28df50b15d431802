// The power limits of one job: those that it ran at, their profiles, and the best pairs with batch sizes.
import { axisUnit, categories, firstOf, ink, layout, limitAxis, plain, plot, wholeStep, within } from "./charts.js";
import { card, dataTable, missing, remark } from "./dom.js";
import { ENERGY, TIME, digits, duration, energy, watts } from "./format.js";

export function pathCard(cards, job) {
  const node = card(
    cards,
    "Path through batch sizes and power limits",
    "Each point is a recurrence, at the batch " +
      "size and limit it ended with. Later points are larger and stronger in colour.",
  );
  const best = new Map(job.sizes.map((s) => [s.batch_size, s.limit_watts]));
  const limit = (r) => r.limit_watts ?? best.get(r.batch_size);
  const rows = job.history.filter(limit),
    most = Math.max(2, job.recurrences),
    first = firstOf(job);
  if (!rows.length) {
    remark(node, "No batch size has a power profile yet.");
    return;
  }
  const text = (r) => `recurrence ${r.number}: ${r.batch_size}, ${limit(r)} W, cost ${energy(r.cost)}`;
  const ticks = {
    title: { text: "recurrence" },
    thickness: 10,
    tick0: 0,
    dtick: wholeStep(2 * (most - first)),
    tickformat: "d",
  };
  plot(
    node,
    `Batch sizes and power limits that ${job.job} has chosen`,
    [
      {
        x: rows.map((r) => String(r.batch_size)),
        y: rows.map(limit),
        mode: "lines+markers",
        line: { color: ink("--line"), width: 1 },
        marker: {
          size: rows.map((_r, i) => 8 + (6 * i) / rows.length),
          color: rows.map((r) => r.number),
          cmin: first,
          cmax: most,
          colorscale: [
            [0, ink("--line")],
            [1, ink("--accent")],
          ],
          colorbar: ticks,
          line: { color: ink("--ink"), width: 0.6 },
        },
        text: rows.map(text),
        hovertemplate: "%{text}<extra></extra>",
      },
    ],
    () => layout(categories("batch size", job.spec.batch_sizes), limitAxis(rows.map(limit))),
  );
}

// The service computes the cost of a step (Equation 2); without it there is no curve.
export function profileCard(cards, job, profiles, sizes) {
  const node = card(
    cards,
    "Power profile of each batch size",
    "Cost of a training step at each power limit, divided by the lowest. The ring marks the chosen limit.",
  );
  if (!profiles.length) {
    remark(node, "Nothing has been profiled yet.");
    return;
  }
  const sameGpu = profiles.every((p) => p.key.gpu_model === profiles[0].key.gpu_model);
  const traces = [],
    rows = [];
  for (const one of profiles) {
    const size = one.key.batch_size;
    const costs = new Map(Object.entries(one.costs || {}).map(([limit, cost]) => [Number(limit), cost]));
    const steps = one.profile.measurements
      .map((m) => ({
        size,
        gpu: one.key.gpu_model,
        limit: m.power_limit,
        cost: costs.get(m.power_limit),
        joules: m.energy / (m.steps || 1),
        seconds: m.time / (m.steps || 1),
        chosen: m.power_limit === one.best_limit,
      }))
      .sort((a, b) => a.limit - b.limit);
    rows.push(...steps);
    const known = steps.filter((s) => !missing(s.cost)),
      least = Math.min(...known.map((s) => s.cost));
    const text = (s) => `${size} at ${s.limit} W: ${energy(s.joules)} and ${digits(1000 * s.seconds)} ms per step`;
    if (known.length)
      traces.push({
        x: known.map((s) => s.limit),
        y: known.map((s) => s.cost / least),
        mode: "lines+markers",
        name: sameGpu ? `${size}` : `${size}, ${plain(one.key.gpu_model)}`,
        line: { color: sizes[size] },
        marker: {
          size: known.map((s) => (s.chosen ? 13 : 5)),
          symbol: known.map((s) => (s.chosen ? "circle-open-dot" : "circle")),
        },
        text: known.map(text),
        hovertemplate: "%{text}<br>%{y:.3f} of the best<extra></extra>",
      });
  }
  if (traces.length) {
    plot(node, `Power profiles of ${job.job}`, traces, () => ({
      ...layout({ title: "power limit, watts" }, { title: "cost of a step / lowest" }),
      showlegend: true,
    }));
  } else remark(node, "The cost of a step is not known for these profiles.");
  dataTable(
    node,
    [
      { name: "Batch size", num: true, show: (s) => String(s.size) },
      { name: "GPU", show: (s) => s.gpu },
      { name: "Limit", num: true, show: (s) => watts(s.limit) },
      { name: "Energy per step", num: true, show: (s) => energy(s.joules) },
      { name: "Time per step", num: true, show: (s) => `${digits(1000 * s.seconds)} ms` },
      { name: "Cost per step", num: true, show: (s) => energy(s.cost) },
      { name: "", show: (s) => (s.chosen ? "chosen" : "") },
    ],
    rows,
  );
}

export function frontCard(cards, job, sizes) {
  const node = card(
    cards,
    "Time against energy",
    "What a run would take at each batch size and power limit: expected " +
      "epochs times a profiled epoch. The line is the Pareto front. The star is the default.",
  );
  const rows = job.points || [];
  if (!rows.length) {
    remark(node, "Not enough is known yet. One batch size must be profiled and must have reached the target.");
    return;
  }
  const time = axisUnit(
      rows.map((r) => r.seconds),
      TIME,
    ),
    unit = axisUnit(
      rows.map((r) => r.joules),
      ENERGY,
    );
  const x = (some) =>
      within(
        some.map((r) => r.seconds),
        time,
      ),
    y = (some) =>
      within(
        some.map((r) => r.joules),
        unit,
      );
  const text = (r) => `${r.batch_size} at ${r.limit_watts} W<br>${duration(r.seconds)}, ${energy(r.joules)}`;
  const traces = [];
  for (const size of new Set(rows.map((r) => r.batch_size))) {
    const some = rows.filter((r) => r.batch_size === size);
    traces.push({
      x: x(some),
      y: y(some),
      mode: "markers",
      name: `${size}`,
      text: some.map(text),
      marker: { color: sizes[size], size: 8, opacity: 0.85 },
      hovertemplate: "%{text}<extra></extra>",
    });
  }
  const front = rows.filter((r) => r.on_front).sort((a, b) => a.seconds - b.seconds);
  const usual = rows.filter((r) => r.is_default);
  traces.push(
    {
      x: x(front),
      y: y(front),
      mode: "lines",
      name: "front",
      line: { color: ink("--ink"), width: 1.2 },
      hoverinfo: "skip",
    },
    {
      x: x(usual),
      y: y(usual),
      mode: "markers",
      name: "default",
      text: usual.map(text),
      marker: { symbol: "star", size: 16, color: ink("--bad"), line: { color: ink("--card"), width: 1 } },
      hovertemplate: "default: %{text}<extra></extra>",
    },
  );
  plot(node, `Time and energy of ${job.job} by batch size and power limit`, traces, () =>
    layout({ title: `time to the target, ${time.name}` }, { title: `energy to the target, ${unit.name}` }),
  );
}
