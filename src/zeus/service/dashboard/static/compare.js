// Any number of jobs side by side: a row for each, so that many fit, and on a phone each is a small card.
import { NeedsToken, RECURRENCES, Unanswered, ask, linkOf, newest, runningTrials } from "./api.js";
import { COLOURS, clear, firstOf, layout, plain, plot, recurrenceAxis, redraw } from "./charts.js";
import { card, el, main, missing, ownerText, table, titled, twoLines } from "./dom.js";
import { count, defaultText, energy, savingText, tint } from "./format.js";

export const compareView = { show: showCompare, pulse: comparePulse };
const LEGEND = 8; // jobs whose names fit below the chart; the table has the colours of all

async function comparePulse({ search }) {
  const query = search.getAll("job").map((id) => `job=${encodeURIComponent(id)}`);
  return JSON.stringify(query.length ? await ask(`api/v1/pulse?${query.join("&")}`) : {});
}

async function showCompare({ search }) {
  const wrongs = [];
  const get = async (id) => {
    try {
      return await newest(id, 1, RECURRENCES);
    } catch (wrong) {
      if (wrong instanceof NeedsToken || wrong instanceof Unanswered) throw wrong;
      wrongs.push(wrong.message);
      return null;
    }
  };
  const jobs = (await Promise.all(search.getAll("job").map(get))).filter((job) => job !== null);
  return () => {
    titled("Compare");
    clear();
    main.append(
      el("h1", {}, `${jobs.length} jobs side by side`),
      el("p", { class: "lead" }, "Cost of each recurrence, divided by the cost of the job's own default."),
      ...wrongs.map((words) => el("p", { class: "bad" }, words)),
    );
    const cards = el("div", { class: "cards" });
    main.append(cards);
    const node = card(cards, "Cost by recurrence, relative to the default", null, true);
    const most = Math.max(2, ...jobs.map((job) => job.recurrences || 0)),
      first = Math.min(...jobs.map(firstOf));
    plot(node, `Relative cost of ${count(jobs.length, "job")}`, jobs.map(relativeCost), () => ({
      ...layout(recurrenceAxis(most, first), { title: "cost / default", rangemode: "tozero" }),
      showlegend: jobs.length <= LEGEND,
    }));
    main.append(el("h2", { class: "after" }, "Results so far"), compareTable(jobs));
    redraw();
  };
}

const DASHES = ["solid", "dash", "dot", "dashdot"]; // for more jobs than colours
const lineOf = (i) => ({ color: COLOURS[i % COLOURS.length], dash: DASHES[Math.floor(i / COLOURS.length) % 4] });
function relativeCost(job, i) {
  const rows = job.history.filter((r) => !missing(r.cost) && r.end !== "open" && r.end !== "unfinished");
  const base = job.default ? job.default.cost : rows.length ? rows[0].cost : 1;
  return {
    x: rows.map((r) => r.number),
    y: rows.map((r) => r.cost / base),
    mode: "lines+markers",
    name: plain(job.job) + (job.default ? "" : " (relative to the first shown)"),
    line: lineOf(i),
    hovertemplate: "%{y:.3f}<extra>%{fullData.name}</extra>",
  };
}

function compareTable(jobs) {
  const size = (j) => {
    const sizes = runningTrials(j).map((t) => t.batch_size);
    return sizes.length ? `${sizes.join(", ")} (running)` : missing(j.batch_size) ? "none" : `${j.batch_size} (next)`;
  };
  const line = (j) => {
    const { color, dash } = lineOf(jobs.indexOf(j)),
      mark = el("span", { class: `swatch ${dash}`, "aria-hidden": "true" });
    mark.style.borderTopColor = color;
    return [mark, el("a", { href: linkOf(j.job) }, j.job), j.owner ? el("small", {}, ownerText(j.owner)) : null];
  };
  const words = (saving) => el("span", { class: tint(saving) }, savingText(saving));
  const knobs = (j) => `${j.spec.eta_knob}, ${j.spec.beta_knob ?? "none"}, ${j.spec.window_size || "none"}`;
  const columns = [
    { name: "Job", class: "name", show: line },
    { name: "Phase", show: (j) => twoLines(j.phase, j.policy) },
    { name: "GPU", show: (j) => j.gpu_model || "" },
    { name: "Recurrences", num: true, show: (j) => String(j.recurrences) },
    { name: "Batch size", num: true, show: (j) => twoLines(size(j), `default ${j.spec.default_batch_size}`) },
    { name: "The default uses", class: "words", show: defaultText },
    { name: "Saved so far", class: "words", show: (j) => words(j.saving) },
    { name: "Latest recurrences", class: "words", show: (j) => words(j.recent_saving) },
    { name: "Energy used", num: true, show: (j) => energy(j.joules) },
    { name: "η, β, window", show: knobs },
  ];
  return table(null, columns, jobs, true);
}
