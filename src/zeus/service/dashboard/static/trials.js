// The trials of a job.
import { EMBEDDED, ask, pathOf } from "./api.js";
import { card, el, missing, pill, table, twoLines } from "./dom.js";
import { ENDINGS, count, duration, energy, metricText, number, percent, watts, when } from "./format.js";

const TRIALS = 12;

function whereText(trial) {
  const model = trial.gpu_model || "",
    prefix = `${trial.gpus} x `;
  return trial.gpus > 1 && !model.startsWith(prefix) ? prefix + model : model;
}

// The limits that a trial ran at, and its share at each, the largest first.
export function limitShares(limits) {
  const rows = Object.entries(limits || {}).filter(([, units]) => units > 0);
  const all = rows.reduce((sum, [, units]) => sum + units, 0);
  const shares = rows.map(([limit, units]) => ({ watts: Number(limit), share: units / all }));
  return shares.sort((a, b) => b.share - a.share);
}

// The two that most of it ran at; profiling visits the others for a moment.
function limitsText(limits) {
  const rows = limitShares(limits),
    rest = rows.length - 2;
  const shown = rows.slice(0, 2).map((r) => watts(r.watts) + (rows.length > 1 ? ` (${percent(r.share)})` : ""));
  return shown.join(", ") + (rest > 0 ? `, ${count(rest, "other")}` : "");
}

const TRIAL_COLUMNS = [
  {
    name: "Trial",
    num: true,
    show: (t) =>
      twoLines(String(t.number), `recurrence ${t.recurrence}`, t.attempt > 1 ? `attempt ${t.attempt}` : null),
  },
  { name: "Batch size", num: true, show: (t) => String(t.batch_size) },
  { name: "Ended", show: (t) => pill(t.ending) },
  { name: "Epochs", num: true, show: (t) => number(t.epochs) },
  { name: "Metric", num: true, show: (t) => metricText(t.metric) },
  { name: "Energy", num: true, show: (t) => energy(t.joules) },
  { name: "Time", num: true, show: (t) => (missing(t.seconds) ? "" : duration(t.seconds)) },
  {
    name: "Cost",
    num: true,
    show: (t) =>
      twoLines(
        energy(t.cost),
        missing(t.cost_limit) ? "no cost limit" : `cost limit ${energy(t.cost_limit)}`,
        t.overshoot > 0 ? `${energy(t.overshoot)} over it` : null,
      ),
  },
  { name: "Where", class: "reason", show: (t) => twoLines(whereText(t), limitsText(t.limits)) },
  {
    name: "Why",
    class: "reason",
    show: (t) => twoLines(t.reason, `asked ${when(t.asked_at)}${missing(t.eta) ? "" : `, η ${t.eta}`}`),
  },
];

export function trialCard(cards, job) {
  const node = card(cards, "Trials", null, true),
    body = el("div", {}),
    log = el("div", { "aria-live": "polite" });
  const filter = { ending: "", size: "", text: "" };
  let offset = 0;
  const set = (name, value) => {
    filter[name] = value;
    offset = 0;
    fill();
  };
  const pick = (name, label, values, show) =>
    el(
      "label",
      {},
      label,
      el(
        "select",
        { on: { change: (event) => set(name, event.target.value) } },
        el("option", { value: "" }, "all"),
        values.map((v) => el("option", { value: v }, show(v))),
      ),
    );
  const typed = (event) => set("text", event.target.value.toLowerCase());
  const text = el("input", { type: "search", placeholder: "in the reason", on: { input: typed } });
  const endings = [...new Set(job.tries.map((t) => t.ending))];
  const sizes = [...new Set(job.tries.map((t) => t.batch_size))].sort((a, b) => a - b);
  node.append(
    el(
      "div",
      { class: "bar" },
      pick("ending", "Ended", endings, (v) => ENDINGS[v] || v),
      pick("size", "Batch size", sizes, String),
      el("label", {}, "Search", text),
    ),
    body,
    log,
  );
  const open = async (trial) => {
    const title = `Log of trial ${trial.number}`;
    try {
      const found = (await ask(`${pathOf(job.job)}/trials/${trial.number}/log`)).log;
      log.replaceChildren(el("h2", {}, title), el("pre", { class: "log", tabindex: "0" }, found));
    } catch (wrong) {
      log.replaceChildren(el("p", { class: "note" }, `${title}: ${wrong.message}`));
    }
    log.scrollIntoView({ block: "nearest" });
  };
  const logButton = (t) =>
    el("button", { type: "button", "aria-label": `log of trial ${t.number}`, on: { click: () => open(t) } }, "Log");
  const columns = EMBEDDED ? TRIAL_COLUMNS : [...TRIAL_COLUMNS, { name: "Log", show: logButton }];
  const wanted = (t) =>
    (!filter.ending || t.ending === filter.ending) &&
    (!filter.size || String(t.batch_size) === filter.size) &&
    (!filter.text || t.reason.toLowerCase().includes(filter.text));
  function fill() {
    const rows = [...job.tries].reverse().filter(wanted),
      last = Math.min(rows.length, offset + TRIALS);
    const title = `${rows.length} of ${count(job.tries.length, "trial")}, the latest first`;
    body.replaceChildren(table(title, columns, rows.slice(offset, last), true));
    if (rows.length <= TRIALS) return;
    const turn = (name, to, disabled) =>
      el(
        "button",
        {
          type: "button",
          disabled,
          on: {
            click: () => {
              offset = to;
              fill();
            },
          },
        },
        name,
      );
    body.append(
      el(
        "div",
        { class: "pages" },
        turn("Later", Math.max(0, offset - TRIALS), offset === 0),
        `${offset + 1} to ${last}`,
        turn("Earlier", offset + TRIALS, last >= rows.length),
      ),
    );
  }
  fill();
}
