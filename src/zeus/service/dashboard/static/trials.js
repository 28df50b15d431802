// The trials of a job, the newest first. Each opens in place: its log, then its facts.
import { TRIALS, ask, pathOf, trialPage } from "./api.js";
import { button, card, el, fact, missing, pill, table, timeOf, twoLines } from "./dom.js";
import { ENDINGS, count, duration, energy, metricText, number, percent, watts, when } from "./format.js";

function whereText(trial) {
  const model = trial.gpu_model || "",
    prefix = `${trial.gpus} x `;
  return trial.gpus > 1 && !model.startsWith(prefix) ? prefix + model : model;
}
const whoText = (trial) => [trial.user, trial.host].filter(Boolean).join(" on ");

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

const costText = (t) =>
  twoLines(
    energy(t.cost),
    missing(t.cost_limit) ? "no cost limit" : `cost limit ${energy(t.cost_limit)}`,
    t.overshoot > 0 ? `${energy(t.overshoot)} over it` : null,
  );
const askedText = (t) => [el("span", {}, "asked "), timeOf(t.asked_at), missing(t.eta) ? "" : `, η ${t.eta}`];
const TRIAL_COLUMNS = [
  { name: "Batch size", num: true, show: (t) => String(t.batch_size) },
  { name: "Ended", show: (t) => pill(t.ending) },
  { name: "Epochs", class: "num extra", show: (t) => number(t.epochs) },
  { name: "Metric", num: true, show: (t) => metricText(t.metric) },
  { name: "Energy", num: true, show: (t) => energy(t.joules) },
  { name: "Time", class: "num extra", show: (t) => (missing(t.seconds) ? "" : duration(t.seconds)) },
  { name: "Cost", num: true, show: costText },
  { name: "Where", class: "reason extra", show: (t) => twoLines(whoText(t) || whereText(t), limitsText(t.limits)) },
  { name: "Why", class: "reason", show: (t) => [t.reason, el("small", {}, askedText(t))] },
];

let held = null; // what a person has chosen here; kept while the same job is drawn anew
export function trialCard(cards, job, linked) {
  const node = card(cards, "Trials", null, true),
    body = el("div", {});
  if (held?.job !== job.job) held = { job: job.job, offset: 0, ending: "", size: "", logs: new Map() };
  let scrollTo = null;
  if (linked && held.linked !== linked) {
    scrollTo = Number(linked);
    Object.assign(held, {
      linked,
      ending: "",
      size: "",
      offset: TRIALS * Math.floor((job.trials - scrollTo) / TRIALS),
    });
    held.logs.set(scrollTo, logPanel(job, scrollTo));
  }
  const set = (name, value) => {
    Object.assign(held, { [name]: value, offset: 0 });
    fill();
  };
  const pick = (name, label, values, shown = {}) => {
    const options = values.map((v) => el("option", { value: v, selected: v === held[name] }, shown[v] || v));
    const change = (event) => set(name, event.target.value);
    const all = el("option", { value: "" }, "all");
    return el("label", {}, label, el("select", { id: `trials-${name}`, on: { change } }, all, options));
  };
  const endings = Object.keys(job.endings || {}).length ? Object.keys(job.endings) : job.tries.map((t) => t.ending);
  node.append(
    el(
      "div",
      { class: "bar" },
      pick("ending", "Ended", [...new Set(endings)], ENDINGS),
      pick("size", "Batch size", job.spec.batch_sizes.map(String)),
    ),
    body,
  );
  let fills = 0;
  async function fill() {
    const fillNumber = ++fills;
    let found = null;
    try {
      found = await trialPage(job, held);
    } catch (wrong) {
      body.replaceChildren(el("p", { class: "bad" }, wrong.message));
      return;
    }
    if (fillNumber !== fills) return;
    body.replaceChildren(trialTable(job, found), trialPages(found.total, fill));
    for (const panel of body.querySelectorAll(".panel")) panel.show();
    if (!scrollTo) return;
    const row = `trial-${scrollTo}`;
    scrollTo = null;
    requestAnimationFrame(() => document.getElementById(row)?.scrollIntoView({ block: "start" })); // the page first
  }
  fill();
}

function trialTable(job, found) {
  const toggle = (t) => {
    const click = (event) => {
      const row = event.currentTarget.closest("tr");
      if (held.logs.delete(t.number)) row.nextSibling.remove();
      else {
        held.logs.set(t.number, logPanel(job, t.number));
        row.after(openedRow(t));
        row.nextSibling.querySelector(".panel")?.show();
      }
      event.currentTarget.setAttribute("aria-expanded", String(held.logs.has(t.number)));
    };
    const props = { id: `trial-${t.number}`, class: "toggle", "aria-expanded": String(held.logs.has(t.number)) };
    const open = button(String(t.number), click, { ...props, "aria-label": `Open trial ${t.number}` });
    return twoLines(open, `recurrence ${t.recurrence}`, t.attempt > 1 ? `attempt ${t.attempt}` : null);
  };
  const columns = [{ name: "Trial", class: "trial", show: toggle }, ...TRIAL_COLUMNS];
  const title = `${found.total} of ${count(job.trials, "trial")}, the latest first; open one for its log`;
  const box = table(title, columns, found.trials, true),
    rows = [...box.querySelectorAll("tbody tr")];
  found.trials.forEach((t, i) => {
    if (held.logs.has(t.number)) rows[i].after(openedRow(t));
  });
  return box;
}

function openedRow(t) {
  const shares = limitsText(t.limits);
  const facts = el(
    "dl",
    { class: "facts" },
    fact("Ended", pill(t.ending)),
    fact("By", t.user || "unknown", t.host ? `on ${t.host}` : null),
    fact("GPU", whereText(t) || "unknown"),
    fact("Power limits", shares || "unknown"),
    fact("Energy and time", energy(t.joules), missing(t.seconds) ? null : duration(t.seconds)),
    fact("Cost", energy(t.cost), missing(t.cost_limit) ? "no cost limit" : `cost limit ${energy(t.cost_limit)}`),
    fact("Metric", metricText(t.metric) || "none", `after ${count(t.epochs ?? 0, "epoch")}`),
    fact("Asked", when(t.asked_at)),
    fact("Last change", when(t.changed_at)),
    t.micro_batch_size ? fact("Samples on each GPU at once", String(t.micro_batch_size)) : null,
    fact("Phase", t.phase || "unknown"),
  );
  const why = el("p", { class: "note" }, `Why ${t.batch_size}: ${t.reason}`);
  return el("tr", { class: "opened" }, el("td", { colspan: "10" }, held.logs.get(t.number), why, facts));
}

// The log of a trial: fetched once it is shown, and again while the trial runs. It stays when the table is drawn anew.
function logPanel(job, trial) {
  const head = el("p", { class: "note" }, "Reading the log."),
    text = el("pre", { class: "log", tabindex: "0", "aria-label": `Log of trial ${trial}`, hidden: true });
  const panel = el("div", { class: "panel" }, el("h3", {}, `Log of trial ${trial}`), head, text);
  let atEnd = true,
    top = 0;
  text.addEventListener("scroll", () => {
    atEnd = text.scrollTop + text.clientHeight >= text.scrollHeight - 4;
    top = text.scrollTop;
  });
  const scroll = () => {
    text.scrollTop = atEnd ? text.scrollHeight : top;
  };
  panel.read = async () => {
    try {
      const found = await ask(`${pathOf(job.job)}/trials/${trial}/log`);
      const where = [found.host, found.folder].filter(Boolean).join(":");
      const parts = ["The last lines", found.at ? `as of ${when(found.at)}` : "", where ? `from ${where}` : ""];
      head.textContent = `${parts.filter(Boolean).join(", ")}.`;
      text.hidden = false;
      if (text.textContent !== found.log) text.textContent = found.log;
      scroll();
    } catch (wrong) {
      head.textContent = wrong.message;
    }
  };
  panel.show = () => {
    if (text.hidden) panel.read();
    scroll();
  };
  return panel;
}
export async function followLog() {
  await Promise.all([...document.querySelectorAll("tr.opened .panel")].map((panel) => panel.read()));
}

function trialPages(total, fill) {
  const { offset } = held,
    last = Math.min(total, offset + TRIALS);
  if (total <= TRIALS) return "";
  const turn = (name, to, disabled) => {
    const click = () => {
      held.offset = to;
      fill();
    };
    return button(name, click, { id: `trials-${name}`, disabled });
  };
  return el(
    "div",
    { class: "pages" },
    turn("Later", Math.max(0, offset - TRIALS), offset === 0),
    `${offset + 1} to ${last} of ${total}`,
    turn("Earlier", offset + TRIALS, last >= total),
  );
}
