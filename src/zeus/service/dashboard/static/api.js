// Data: from /api/v1, or from ZEUS_DATA where the page was written to a file.
// The service may be older than this script: a field that is missing counts as unknown.
import { missing } from "./dom.js";

export const EMBEDDED = window.ZEUS_DATA || null;
export class NeedsToken extends Error {}

export async function ask(path) {
  if (EMBEDDED) return embedded(path);
  const answer = await fetch(path, { headers: { Accept: "application/json" }, credentials: "same-origin" });
  if (answer.status === 401) throw new NeedsToken();
  const isJson = answer.headers.get("content-type")?.includes("json");
  const data = isJson ? await answer.json() : await answer.text();
  if (!answer.ok) throw new Error(data?.error?.message || `the service answered with an error (${answer.status})`);
  return data;
}

function embedded(path) {
  const url = new URL(path, "http://page/"),
    parts = url.pathname.split("/").map(decodeURIComponent);
  if (url.pathname === "/api/v1/summary") return EMBEDDED.summary;
  if (url.pathname === "/api/v1/jobs") {
    const q = (url.searchParams.get("q") || "").toLowerCase();
    const found = EMBEDDED.jobs.filter((job) => job.job.toLowerCase().includes(q));
    const offset = Number(url.searchParams.get("offset") || 0),
      limit = Number(url.searchParams.get("limit") || 50);
    return { total: found.length, offset, jobs: found.slice(offset, offset + limit) };
  }
  if (url.pathname === "/api/v1/pulse") return {};
  const job = EMBEDDED.full[parts[4]];
  if (!job) throw new Error(`job ${parts[4]} is not in this file`);
  if (parts[5] === "profiles") return EMBEDDED.profiles?.[parts[4]] || [];
  if (parts[5] === "trials") throw new Error("logs are not in this file");
  return job;
}
export const pathOf = (id) => `api/v1/jobs/${encodeURIComponent(id)}`;

// Trials that run now. A service that does not list them still shows them as open; one whose lease lapsed is lost.
export function runningTrials(job) {
  return job.running || stillOpen(job.tries || []);
}
function stillOpen(trials) {
  const now = EMBEDDED?.at ? Date.parse(EMBEDDED.at) : Date.now();
  const leased = (t) => missing(t.leased_until) || Date.parse(t.leased_until) > now;
  return trials.filter((t) => t.ending === "open" && leased(t));
}
