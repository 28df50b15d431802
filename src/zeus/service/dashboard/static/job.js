// One job.
import { actionBar } from "./actions.js";
import { RECURRENCES, TRIALS, ask, linkOf, newest, optional, pathOf, runningTrials } from "./api.js";
import { auditCard } from "./audit.js";
import { clear, colours, redraw } from "./charts.js";
import { curveCards } from "./curves.js";
import { el, fact, main, missing, reload, savingTiles, tile, timeOf, titled } from "./dom.js";
import {
  ENDINGS,
  count,
  defaultText,
  energy,
  metricText,
  savingText,
  targetText,
  tint,
  usedWorth,
  watts,
  when,
} from "./format.js";
import { beliefCard, costCard, energyCard } from "./job_charts.js";
import { phaseOf } from "./list_table.js";
import { frontCard, pathCard, profileCard } from "./limit_charts.js";
import { servesAudit } from "./session.js";
import { settingsCard } from "./settings.js";
import { followLog, trialCard } from "./trials.js";

export const jobView = { show: showJob, pulse: jobPulse, follow: followJob };

async function jobPulse({ job }) {
  return JSON.stringify(await ask(`api/v1/pulse?job=${encodeURIComponent(job)}`));
}

let past = {}; // how many recurrences of which job a person wants to see
async function showJob({ job: id, search }) {
  if (past.id !== id) past = { id, recurrences: RECURRENCES };
  const [job, profiles, audit] = await Promise.all([
    newest(id, TRIALS, past.recurrences),
    ask(`${pathOf(id)}/profiles/all`),
    servesAudit() ? optional(`${pathOf(id)}/audit?limit=20`) : null,
  ]);
  return () => {
    titled(id);
    clear();
    const box = el("div", { class: "running" }),
      open = runningTrials(job);
    const cards = el("div", { class: "cards" });
    main.append(jobHead(job), actionBar(job), el("p", { class: "lead" }, nextText(job)), failedLink(job) ?? "", box);
    main.append(jobTiles(job, open), cards);
    running = { job, box, numbers: new Set(open.map((t) => t.number)) };
    fillRunning(box, job, open);
    const sizes = colours(job.spec.batch_sizes);
    costCard(cards, job, sizes, (more) => {
      past.recurrences += more;
      reload();
    });
    curveCards(cards, job, sizes);
    beliefCard(cards, job, sizes);
    frontCard(cards, job, sizes);
    energyCard(cards, job);
    pathCard(cards, job);
    profileCard(cards, job, profiles, sizes);
    trialCard(cards, job, search.get("trial"));
    settingsCard(cards, job);
    auditCard(cards, job, audit);
    redraw();
  };
}

function jobHead(job) {
  const where = runningTrials(job)[0]?.host ?? job.tries.at(-1)?.host;
  const facts = [
    job.owner ? `owner ${job.owner}` : "",
    where ? `last on ${where}` : "",
    job.gpu_model || "",
    job.last_run_at ? ["last run ", timeOf(job.last_run_at)] : "",
  ].filter((one) => one !== "");
  const by = job.paused_by ? `paused by ${job.paused_by}` : "paused";
  const paused = job.paused ? el("span", { class: "pill warm" }, by) : null;
  return el(
    "div",
    { class: "jobhead" },
    el("h1", {}, job.job),
    el(
      "p",
      { class: "note" },
      paused,
      facts.flatMap((one) => [el("span", {}, one), " "]),
    ),
  );
}

// To what the last trial printed, if it failed.
function failedLink(job) {
  const last = job.tries.filter((t) => t.ending !== "open").at(-1);
  if (!["crashed", "lost"].includes(last?.ending)) return null;
  const href = `${linkOf(job.job)}?trial=${last.number}`;
  return el("p", {}, el("a", { href }, `Trial ${last.number} ${ENDINGS[last.ending]}: read its log`));
}

function nextText(job) {
  if (job.stuck) return el("span", { class: "bad" }, job.stuck);
  return job.next ? `Next: ${job.next.reason.replace(/\.$/, "")}.` : "The job has not run yet.";
}

let running = null; // the job whose running trials are shown, where, and their numbers
function fillRunning(box, job, trials) {
  const unsaid = "not reported yet";
  box.replaceChildren(
    ...trials.map((t) => {
      const attempt = t.attempt > 1 ? `, attempt ${t.attempt}` : "",
        since = t.asked_at ? `, since ${when(t.asked_at)}` : "",
        who = t.user ? `, by ${t.user}` : "",
        where = t.host ? ` on ${t.host}` : "";
      return el(
        "section",
        { class: "card now", "aria-label": `Trial ${t.number} is running` },
        el("h2", {}, `Trial ${t.number} is running`),
        el("p", { class: "note" }, `Recurrence ${t.recurrence}${attempt}${since}${who}${where}.`),
        el(
          "dl",
          { class: "facts" },
          fact("Batch size", String(t.batch_size)),
          fact(
            "Epochs done",
            missing(t.epochs) ? unsaid : `${t.epochs} of at most ${t.max_epochs ?? job.spec.max_epochs}`,
          ),
          fact("Metric", missing(t.metric) ? unsaid : metricText(t.metric), `target: ${targetText(job.spec)}`),
          fact("Energy so far", missing(t.joules) ? unsaid : energy(t.joules)),
          missing(t.watts) ? null : fact("Power", watts(t.watts)),
        ),
      );
    }),
  );
}

// What a running trial has reported changes no pulse, so it is asked for while one runs.
async function followJob() {
  if (!running?.box.isConnected) return;
  const { job, box, numbers } = running;
  if (!numbers.size) return;
  const { trials } = await ask(`${pathOf(job.job)}/trials?ending=open&limit=1000&curves=false`);
  const open = trials.filter((t) => numbers.has(t.number));
  if (running?.box === box && open.length) fillRunning(box, job, open);
  await followLog();
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
  const failed = job.failures ? `${job.failures} of the last 10 trials failed` : null;
  return el(
    "dl",
    { class: "tiles" },
    tile("Phase", phaseOf(job), job.phase_text, null, Boolean(job.phase_text)),
    tile("Recurrences", String(job.recurrences), [count(job.trials, "trial"), failed]),
    sizeTile,
    tile("Energy used", energy(job.joules), [unknown, lost, ...usedWorth(job.footprint)]),
    tile("Default", `batch size ${job.spec.default_batch_size}${limit}`, defaultText(job), null, true),
    tile("Latest recurrences", savingText(recent), line(lately), tint(recent), true),
    ...savingTiles("Saved energy", saving, line(notes)),
  );
}
