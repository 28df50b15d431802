// Files that people take away: trials as CSV, a job as JSON, a chart as PNG.
import { ask, pathOf } from "./api.js";
import { el } from "./dom.js";

function saveAs(name, href) {
  const link = el("a", { href, download: name.replace(/[^\w.-]+/g, "_"), hidden: true });
  document.body.append(link);
  link.click();
  link.remove();
}
function saveText(name, type, text) {
  const address = URL.createObjectURL(new Blob([text], { type }));
  saveAs(name, address);
  setTimeout(() => URL.revokeObjectURL(address), 60_000); // the browser may still be reading it
}

export async function saveJob(job) {
  saveText(`${job.job}.json`, "application/json", JSON.stringify(await ask(pathOf(job.job)), null, 2));
}

const CSV_COLUMNS = [
  ...["number", "recurrence", "attempt", "ending", "batch_size", "epochs", "metric", "joules", "seconds", "cost"],
  ...["cost_limit", "eta", "user", "host", "gpu_model", "gpus", "limits", "phase", "reason", "asked_at", "changed_at"],
];
// A text that a spreadsheet would take for a formula begins with a quote.
function csvCell(value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "number") return String(value);
  const text = typeof value === "object" ? JSON.stringify(value) : String(value);
  return `"${(/^[=+\-@\t\r]/.test(text) ? `'${text}` : text).replaceAll('"', '""')}"`;
}
export function csvOf(trials) {
  const lines = trials.map((t) => CSV_COLUMNS.map((name) => csvCell(t[name])).join(","));
  return `${[CSV_COLUMNS.join(","), ...lines].join("\r\n")}\r\n`;
}
export async function saveTrials(job) {
  saveText(`${job.job}-trials.csv`, "text/csv", csvOf(await allTrials(job)));
}

const PAGE = 1000;
async function allTrials(job) {
  if (job.tries.length >= job.trials) return job.tries;
  const found = [];
  for (let offset = 0; offset < job.trials; offset += PAGE)
    found.push(...(await ask(`${pathOf(job.job)}/trials?offset=${offset}&limit=${PAGE}&curves=false`)).trials);
  return found;
}

const PICTURE = { format: "png", width: 1000, height: 500, scale: 2 };
export async function savePicture(box, name, background) {
  const picture = { data: box.data, layout: { ...box.layout, paper_bgcolor: background } };
  saveAs(`${name}.png`, await Plotly.toImage(picture, PICTURE));
}
