// Answers from the data of a page that was written to a file, as the service gives them.
import { missing } from "./dom.js";

export const EMBEDDED = window.ZEUS_DATA || null;

export function embedded(path) {
  const url = new URL(path, "http://page/"),
    parts = url.pathname.split("/").map(decodeURIComponent);
  const [kind, id, part] = parts.slice(3);
  if (kind === "summary") return EMBEDDED.summary;
  if (kind === "fleet" && EMBEDDED.fleet) return EMBEDDED.fleet;
  if (kind === "jobs" && missing(id)) return embeddedList(url.searchParams);
  if (kind === "pulse") return {};
  if (kind !== "jobs") throw new Error("this is not in the file; ask the service");
  const job = EMBEDDED.full[id];
  if (!job) throw new Error(`job ${id} is not in this file`);
  if (part === "profiles") return EMBEDDED.profiles?.[id] || [];
  if (part === "trials") throw new Error("logs are not in this file");
  if (part === "audit") throw new Error("the audit is not in this file");
  return job;
}

const SORT_KEYS = {
  name: (job) => job.job.toLowerCase(),
  owner: (job) => job.owner || null,
  gpu: (job) => job.gpu_model || null,
  state: (job) => job.state,
  last: (job) => job.last_run_at,
  trials: (job) => job.trials,
  joules: (job) => job.joules,
  saving: (job) => job.saving?.share,
  failures: (job) => job.failures,
};

function embeddedList(search) {
  const wanted = (name, value) => !search.get(name) || search.get(name) === value;
  const q = (search.get("q") || "").toLowerCase(),
    key = SORT_KEYS[search.get("sort")] || SORT_KEYS.name;
  const found = EMBEDDED.jobs
    .filter((job) => job.job.toLowerCase().includes(q))
    .filter((job) => wanted("owner", job.owner) && wanted("gpu", job.gpu_model) && wanted("state", job.state))
    .sort(inOrder(key, search.get("desc") === "true"));
  const offset = Number(search.get("offset") || 0),
    limit = Number(search.get("limit") || 50);
  const all = (name) => [...new Set(EMBEDDED.jobs.map((job) => job[name]).filter(Boolean))].sort();
  const jobs = found.slice(offset, offset + limit);
  return { total: found.length, offset, jobs, owners: all("owner"), gpus: all("gpu_model") };
}

// Unknown values last, whatever the order.
function inOrder(key, desc) {
  return (a, b) => {
    const [x, y] = [key(a), key(b)];
    if (missing(x) || missing(y)) return missing(x) - missing(y);
    return (x < y ? -1 : x > y ? 1 : 0) * (desc ? -1 : 1);
  };
}
