// One job.
import { ask, pathOf, runningTrials } from "./api.js";
import { clear, colours, redraw } from "./charts.js";
import { card, crumbs, el, main, missing, savingTiles, tile } from "./dom.js";
import { count, defaultText, energy, metricText, number, savingText, tint, usedWorth, watts, when } from "./format.js";
import { beliefCard, costCard, energyCard } from "./job_charts.js";
import { frontCard, pathCard, profileCard } from "./limit_charts.js";
import { trialCard } from "./trials.js";

export async function showJob(id) {
  const [job, profiles] = await Promise.all([ask(pathOf(id)), ask(`${pathOf(id)}/profiles/all`)]);
  return () => {
    crumbs([[id, null]]);
    clear();
    main.append(el("h1", {}, job.job), el("p", { class: "lead" }, nextText(job)));
    const open = runningTrials(job),
      box = el("div", { class: "running" });
    main.append(box);
    running = open.length ? { job, box, numbers: new Set(open.map((t) => t.number)) } : null;
    fillRunning(box, job, open);
    main.append(jobTiles(job, open));
    const cards = el("div", { class: "cards" });
    main.append(cards);
    const sizes = colours(job.spec.batch_sizes);
    costCard(cards, job, sizes);
    energyCard(cards, job);
    beliefCard(cards, job, sizes);
    pathCard(cards, job);
    profileCard(cards, job, profiles, sizes);
    frontCard(cards, job, sizes);
    settingsCard(cards, job);
    trialCard(cards, job);
    redraw();
  };
}

function nextText(job) {
  if (job.stuck) return el("span", { class: "bad" }, job.stuck);
  return job.next ? `Next: ${job.next.reason.replace(/\.$/, "")}.` : "The job has not run yet.";
}

function targetText(spec) {
  return `${spec.higher_is_better_metric ? "at least" : "at most"} ${metricText(spec.target_metric)}`;
}

let running = null; // the job whose running trials are shown, where, and their numbers
function fillRunning(box, job, trials) {
  const unsaid = "not reported yet";
  box.replaceChildren(
    ...trials.map((t) => {
      const attempt = t.attempt > 1 ? `, attempt ${t.attempt}` : "";
      const since = t.asked_at ? `, since ${when(t.asked_at)}` : "";
      return el(
        "section",
        { class: "card now", "aria-label": `Trial ${t.number} is running` },
        el("h2", {}, `Trial ${t.number} is running`),
        el("p", { class: "note" }, `Recurrence ${t.recurrence}${attempt}${since}.`),
        el(
          "dl",
          { class: "facts" },
          fact("Batch size", String(t.batch_size)),
          fact("Epochs done", missing(t.epochs) ? unsaid : `${t.epochs} of at most ${job.spec.max_epochs}`),
          fact("Metric", missing(t.metric) ? unsaid : metricText(t.metric), `target: ${targetText(job.spec)}`),
          fact("Energy so far", missing(t.joules) ? unsaid : energy(t.joules)),
        ),
      );
    }),
  );
}
function fact(name, value, small) {
  return el("div", {}, el("dt", {}, name), el("dd", {}, value, small ? el("small", {}, small) : null));
}

// What a running trial has reported changes no pulse, so it is asked for while one runs.
export async function refreshRunning() {
  if (!running?.box.isConnected) return;
  const { job, box, numbers } = running;
  const { trials } = await ask(`${pathOf(job.job)}/trials?ending=open&limit=1000`);
  const open = trials.filter((t) => numbers.has(t.number));
  if (running?.box === box && open.length) fillRunning(box, job, open);
}

function jobTiles(job, open) {
  const recent = job.recent_saving,
    saving = job.saving,
    usual = job.default;
  const next = missing(job.batch_size) ? "none" : String(job.batch_size);
  const sizeTile = open.length
    ? tile("Batch size now", open.map((t) => t.batch_size).join(", "), `next: ${next}`)
    : tile("Next batch size", next);
  const over = (one) => (one.recurrences ? `over ${count(one.recurrences, "recurrence")}` : null);
  const notes = saving ? [over(saving), "including exploration", job.surer] : [job.default_why_not];
  const lately = recent ? [over(recent)] : [];
  const line = (parts) => parts.filter(Boolean).join("; ");
  const limit = usual && !missing(usual.limit_watts) ? ` at ${watts(usual.limit_watts)}` : "";
  const unknown = job.unknown_tries ? `${count(job.unknown_tries, "trial")} of unknown energy` : job.gpu_model;
  const lost = job.lost ? `${count(job.lost.recurrences, "recurrence")} lost, as no metric was ever seen` : null;
  return el(
    "dl",
    { class: "tiles" },
    tile("Phase", job.phase),
    tile("Recurrences", String(job.recurrences), count(job.trials, "trial")),
    sizeTile,
    tile("Energy used", energy(job.joules), [unknown, lost, ...usedWorth(job.footprint)]),
    tile("Default", `batch size ${job.spec.default_batch_size}${limit}`, defaultText(job), null, true),
    tile("Latest recurrences", savingText(recent), line(lately), tint(recent), true),
    ...savingTiles("Saved energy", saving, line(notes)),
  );
}

function settingsCard(cards, job) {
  const node = card(cards, "Settings", null, true),
    spec = job.spec;
  const better = spec.higher_is_better_metric ? "higher is better" : "lower is better";
  const limits = spec.power_limits?.length ? spec.power_limits.map(watts).join(", ") : "all, in steps of 25 W";
  const version = missing(job.policy_version) ? "" : `, version ${job.policy_version}`;
  const since = job.registered_at ? `, since ${when(job.registered_at)}` : "";
  node.append(
    el(
      "dl",
      { class: "facts settings" },
      fact("Target", `metric ${targetText(spec)}`, better),
      fact("Max epochs", number(spec.max_epochs)),
      fact("η (eta)", number(spec.eta_knob), "1: only energy counts; 0: only time"),
      spec.beta_knob === null
        ? fact("β (beta)", "none", "no run is stopped for its cost")
        : fact("β (beta)", number(spec.beta_knob), "a run may cost this many times the best one"),
      fact(
        "Window",
        spec.window_size ? `the last ${count(spec.window_size, "run")} of each size` : "none",
        spec.window_size ? null : "nothing is forgotten",
      ),
      fact("Batch sizes", spec.batch_sizes.join(", ")),
      fact("Default batch size", number(spec.default_batch_size)),
      fact("Power limits", limits),
      fact("Policy", `${job.policy}${version}`),
      fact("Revision", missing(job.revision) ? "unknown" : `${job.revision}${since}`),
    ),
  );
}
