// The rows of the list of jobs.
import { linkOf } from "./api.js";
import { el, missing, ownerText, spark, table, timeOf, twoLines } from "./dom.js";
import { ENDINGS, count, energy, number, savingText, tint, watts } from "./format.js";

const chosen = new Set(); // jobs to compare
const RUNS = 3; // running trials that a row shows

export function jobTable(page, offset, sorting) {
  const open = () => {
    location.hash = `#/compare?${[...chosen].map((id) => `job=${encodeURIComponent(id)}`).join("&")}`;
  };
  const compare = el("button", { class: "main", id: "compare", type: "button", on: { click: open } }, "Compare");
  const update = () => {
    compare.disabled = chosen.size < 2;
    compare.textContent = chosen.size ? `Compare ${chosen.size}` : "Compare";
  };
  update();
  const box = (row) => {
    const change = (event) => {
      event.target.checked ? chosen.add(row.job) : chosen.delete(row.job);
      update();
    };
    const props = { id: `choose-${offset + page.jobs.indexOf(row)}`, "aria-label": `choose ${row.job} to compare` };
    return el("input", { type: "checkbox", ...props, checked: chosen.has(row.job), on: { change } });
  };
  const words = (saving) => el("span", { class: tint(saving) }, savingText(saving));
  const columns = [
    { name: "Compare", class: "box", show: box },
    { name: "Job", key: "name", class: "name", show: (row) => el("a", { href: linkOf(row.job) }, row.job) },
    { name: "Owner", key: "owner", class: "owner", show: (row) => ownerText(row.owner) },
    { name: "State", key: "state", class: "state", show: stateOf },
    { name: "GPU", key: "gpu", class: "gpu", show: (row) => twoLines(row.gpu_model || "", sizeText(row)) },
    { name: "Last run", key: "last", show: lastRun },
    { name: "Failures", key: "failures", num: true, show: failureText },
    { name: "Runs", key: "trials", num: true, show: (row) => twoLines(number(row.recurrences), trialText(row)) },
    { name: "Energy", key: "joules", num: true, show: (row) => (missing(row.joules) ? "" : energy(row.joules)) },
    { name: "Saved so far", key: "saving", class: "words", show: (row) => words(row.saving) },
    { name: "Cost", show: (row) => spark(row.costs) },
  ];
  const caption = [`${count(page.total, "job")}; choose two or more to compare`, compare];
  return table(caption, columns, page.jobs, true, sorting);
}

const sizeText = (row) => (missing(row.batch_size) ? null : `next size: ${row.batch_size}`);
const trialText = (row) => (missing(row.trials) || row.trials === row.recurrences ? null : count(row.trials, "trial"));
const lastRun = (row) => twoLines(timeOf(row.last_run_at), row.last_end ? ENDINGS[row.last_end] || row.last_end : null);
// Of the last ten trials, as the service counts.
function failureText(row) {
  if (missing(row.failures)) return "";
  return row.failures ? el("span", { class: "bad" }, `${row.failures} of the last 10`) : "none";
}

const STATE_CLASSES = { running: "warm", failing: "bad", losing: "bad", ok: "good", new: "soft" };
export const phaseOf = (job) => (job.paused ? "paused" : job.phase);
// An older service tells no state, but what runs.
function stateOf(row) {
  const running = row.running || [],
    state = row.state || (running.length ? "running" : null);
  const badge = state ? el("span", { class: `pill ${STATE_CLASSES[state] || "soft"}` }, state) : null;
  const trials = running.slice(0, RUNS).map((t) => el("small", { class: "now" }, runText(t)));
  if (running.length > RUNS) trials.push(el("small", {}, `and ${count(running.length - RUNS, "other trial")}`));
  const phase = el("small", { class: row.remark ? "bad" : "", title: row.phase_text }, phaseOf(row));
  return [badge, ...trials, phase];
}

// "epoch 4 of 40, 212 W, 61.5 kJ, node7"
export function runText(trial) {
  const most = missing(trial.max_epochs) ? "" : ` of ${trial.max_epochs}`;
  const parts = [
    `batch size ${trial.batch_size}`,
    missing(trial.epochs) ? "no epoch yet" : `epoch ${trial.epochs}${most}`,
    watts(trial.watts),
    missing(trial.joules) ? "" : energy(trial.joules),
    trial.host ? `on ${trial.host}` : "",
  ];
  return parts.filter(Boolean).join(", ");
}
