// Jobs side by side.
import { ask, pathOf, runningTrials } from "./api.js";
import { COLOURS, clear, layout, plain, plot, recurrenceAxis, redraw } from "./charts.js";
import { card, crumbs, el, main, missing, table } from "./dom.js";
import { count, defaultText, energy, savingText } from "./format.js";

export async function showCompare(query) {
  const jobs = await Promise.all(query.getAll("job").map((id) => ask(pathOf(id))));
  return () => {
    crumbs([["Compare", null]]);
    clear();
    main.append(
      el("h1", {}, `${jobs.length} jobs side by side`),
      el("p", { class: "lead" }, "Cost of each recurrence, divided by the cost of the job's own default."),
    );
    const cards = el("div", { class: "cards" });
    main.append(cards);
    const node = card(cards, "Cost by recurrence, relative to the default", null, true);
    const most = Math.max(2, ...jobs.map((job) => job.recurrences || 0));
    plot(node, `Relative cost of ${count(jobs.length, "job")}`, jobs.map(relativeCost), () =>
      layout(recurrenceAxis(most), { title: "cost / default", rangemode: "tozero" }),
    );
    main.append(el("h2", {}, " "), compareTable(jobs));
    redraw();
  };
}

function relativeCost(job, i) {
  const rows = job.history.filter((r) => !missing(r.cost));
  const base = job.default ? job.default.cost : rows.length ? rows[0].cost : 1;
  return {
    x: rows.map((r) => r.number),
    y: rows.map((r) => r.cost / base),
    mode: "lines+markers",
    name: plain(job.job) + (job.default ? "" : " (relative to its first)"),
    line: { color: COLOURS[i % COLOURS.length] },
    hovertemplate: "%{y:.3f}<extra>%{fullData.name}</extra>",
  };
}

function compareTable(jobs) {
  const size = (j) => {
    const sizes = runningTrials(j).map((t) => t.batch_size);
    return sizes.length ? `${sizes.join(", ")} (running)` : missing(j.batch_size) ? "none" : `${j.batch_size} (next)`;
  };
  const columns = [{ name: "", class: "name", show: (row) => row[0] }];
  for (const job of jobs) columns.push({ name: job.job, show: (row) => row[1](job) });
  return table("Results so far", columns, [
    ["Phase", (j) => j.phase],
    ["Policy", (j) => j.policy],
    ["GPU", (j) => j.gpu_model || ""],
    ["Recurrences", (j) => String(j.recurrences)],
    ["Batch size", size],
    ["Default batch size", (j) => String(j.spec.default_batch_size)],
    ["The default uses", (j) => defaultText(j)],
    ["Saved so far", (j) => savingText(j.saving)],
    ["Latest recurrences", (j) => savingText(j.recent_saving)],
    ["Energy used", (j) => energy(j.joules)],
    ["η, β, window", (j) => `${j.spec.eta_knob}, ${j.spec.beta_knob ?? "none"}, ${j.spec.window_size || "none"}`],
  ]);
}
