// What may be done to a job: each is confirmed in a dialog that says what will happen. The service keeps an audit.
import { ask, pathOf, request } from "./api.js";
import { button, dialog, el } from "./dom.js";
import { EMBEDDED } from "./embedded.js";
import { count } from "./format.js";
import { saveJob, saveTrials } from "./saving_files.js";

export function actionBar(job) {
  const files = [button("Trials as CSV", () => saveTrials(job)), button("Job as JSON", () => saveJob(job))];
  const bar = el("div", { class: "bar actions", role: "group", "aria-label": "Actions" });
  if (job.may_change && !EMBEDDED)
    bar.append(
      job.paused ? button("Resume", () => resume(job)) : button("Pause", () => pause(job)),
      button("Change η or β", () => changeKnobs(job)),
    );
  if (job.may_remove && !EMBEDDED)
    bar.append(
      ...(crashedSizes(job).length ? [button("Offer a size again", () => pardonSize(job))] : []),
      button("Reset", () => reset(job)),
      button("Remove", () => remove(job), { class: "danger" }),
    );
  bar.append(...files);
  if (job.may_change === false)
    bar.append(
      el("span", { class: "note" }, `Only ${job.owner ? `${job.owner} or an admin` : "an admin"} may change this job.`),
    );
  return bar;
}

const says = (...lines) => lines.map((line) => el("p", {}, line));
const change = (job, fields) => request("PATCH", pathOf(job.job), fields);

function pause(job) {
  const words = says(
    `Runs go on as before Zeus: with batch size ${job.spec.default_batch_size} and without a power limit of Zeus.`,
    "What was learned is kept. A trial that runs now ends as it began. You can resume at any time.",
  );
  dialog(`Pause ${job.job}?`, words, "Pause", () => change(job, { paused: true }));
}

function resume(job) {
  const words = says("The next run gets its batch size and power limit from Zeus again. Nothing was forgotten.");
  dialog(`Resume ${job.job}?`, words, "Resume", () => change(job, { paused: false }));
}

function changeKnobs(job) {
  const spec = job.spec;
  const field = (id, label, value, min, most) => {
    const input = el("input", { id, type: "number", min, max: most, step: "any", value: value ?? "" });
    return { input, row: el("label", { for: id, class: "row" }, label, input) };
  };
  const eta = field("eta", "η, from 0 (only time counts) to 1 (only energy counts)", spec.eta_knob, "0", "1");
  const beta = field("beta", "β, how many times the best run a run may cost", spec.beta_knob, "1");
  const content = [
    ...says(
      "The costs of all earlier trials are computed anew, so the best batch size may become another one.",
      "The next run uses the new values; a trial that runs now does not change.",
    ),
    eta.row,
    beta.row,
  ];
  const send = () => {
    const fields = {};
    const add = (name, input, now) => {
      if (input.value !== "" && Number(input.value) !== now) fields[name] = Number(input.value);
    };
    add("eta_knob", eta.input, spec.eta_knob);
    add("beta_knob", beta.input, spec.beta_knob, "1");
    if (!Object.keys(fields).length) throw new Error("Nothing has changed. Enter another value, or cancel.");
    return change(job, fields);
  };
  dialog(`Change η or β of ${job.job}?`, content, "Change", send);
}

const crashedSizes = (job) => job.sizes.filter((one) => one.standing === "crashed").map((one) => one.batch_size);
function pardonSize(job) {
  const size = el(
    "select",
    { id: "size" },
    crashedSizes(job).map((one) => el("option", { value: one }, String(one))),
  );
  const content = [
    ...says("This size crashed, so it is not tried any more. It will be offered again, and may crash again."),
    el("label", { for: "size", class: "row" }, "Batch size", size),
  ];
  const send = () => request("POST", `${pathOf(job.job)}/pardon`, { batch_size: Number(size.value) });
  dialog(`Offer a batch size of ${job.job} again?`, content, "Offer again", send);
}

// Export first: what it writes, `zeus jobs import` reads.
function keepFirst(job) {
  const href = `api/v1/export?job=${encodeURIComponent(job.job)}`;
  const link = el("a", { href, download: `${job.job.replace(/[^\w.-]+/g, "_")}.jsonl` }, "Download all of it");
  return el("p", {}, link, " first, if you may want it back.");
}

async function reset(job) {
  const pulse = (await ask(`api/v1/pulse?job=${encodeURIComponent(job.job)}`))[job.job];
  const words = says(
    `${count(job.trials, "trial")} and all power profiles are removed. The job stays, and learns from the beginning.`,
    "This cannot be undone. If the job changes while you decide, nothing is removed.",
  );
  const send = () => request("POST", `${pathOf(job.job)}/reset`, { pulse });
  dialog(`Reset ${job.job}?`, [...words, keepFirst(job)], "Reset", send, true);
}

function remove(job) {
  const name = el("input", { id: "name", autocomplete: "off" });
  const content = [
    ...says(`The job, ${count(job.trials, "trial")} and all power profiles are removed. This cannot be undone.`),
    keepFirst(job),
    el("label", { for: "name", class: "row" }, `Type ${job.job} to confirm`, name),
  ];
  const send = async () => {
    if (name.value !== job.job) throw new Error(`This is not the name of the job. Type ${job.job}.`);
    await request("DELETE", pathOf(job.job));
    location.hash = "#/";
  };
  dialog(`Remove ${job.job}?`, content, "Remove", send, true);
}
