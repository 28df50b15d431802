// Data: from /api/v1, or from ZEUS_DATA where the page was written to a file.
// The service may be older than this script: a field that is missing counts as unknown.
import { missing } from "./dom.js";
import { EMBEDDED, embedded } from "./embedded.js";

const PATIENCE = 30_000; // milliseconds until a request counts as not answered

export class NeedsToken extends Error {}
export class Unanswered extends Error {} // by the service, or by its store

export const ask = (path) => (EMBEDDED ? embedded(path) : request("GET", path));

// Change something. The service checks who asks, whatever the page offers.
export async function request(method, path, body) {
  const options = { method, headers: { Accept: "application/json" }, credentials: "same-origin" };
  if (!missing(body)) {
    options.headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  let answer = null;
  try {
    answer = await fetch(path, { ...options, signal: AbortSignal.timeout(PATIENCE) });
  } catch {
    throw new Unanswered("the service does not answer");
  }
  if (answer.status === 401) throw new NeedsToken();
  if (answer.status === 204) return null;
  const isJson = answer.headers.get("content-type")?.includes("json");
  const data = isJson ? await answer.json() : await answer.text();
  if (answer.ok) return data;
  const why = data?.error?.message || data?.message || `the service answered with an error (${answer.status})`;
  throw answer.status >= 500 ? new Unanswered(why) : new Error(why);
}

// An answer that an older service does not give: null in its place.
export async function optional(path) {
  try {
    return await ask(path);
  } catch (wrong) {
    if (wrong instanceof NeedsToken || wrong instanceof Unanswered) throw wrong;
    return null;
  }
}

export const pathOf = (id) => `api/v1/jobs/${encodeURIComponent(id)}`;
export const linkOf = (id) => `#/job/${encodeURIComponent(id)}`;

// What a job's page needs at first. The rest of its past is asked for when somebody wants to see it.
export const TRIALS = 12,
  RECURRENCES = 300,
  POINTS = 80; // of a curve
export const newest = (id, tries, history) => ask(`${pathOf(id)}?tries=${tries}&history=${history}&points=${POINTS}`);

// Some trials of a job, the newest first: of those that came with it, or asked for.
export async function trialPage(job, { offset, ending, size, curves }) {
  const came = [...job.tries].reverse(),
    isFirst = !offset && !ending && !size && came.length >= TRIALS;
  if (isFirst) return { total: job.trials, trials: came.slice(0, TRIALS) };
  if (EMBEDDED || came.length >= job.trials) {
    const found = came.filter((t) => (!ending || t.ending === ending) && (!size || String(t.batch_size) === size));
    return { total: found.length, trials: found.slice(offset, offset + TRIALS) };
  }
  const query = new URLSearchParams({ newest: true, offset, limit: TRIALS, curves: Boolean(curves), points: POINTS });
  if (ending) query.set("ending", ending);
  if (size) query.set("batch_size", size);
  return ask(`${pathOf(job.job)}/trials?${query}`);
}

// Trials that run now. A service that does not list them still shows them as open; one whose lease lapsed is lost.
export function runningTrials(job) {
  return job.running || stillOpen(job.tries || []);
}
function stillOpen(trials) {
  const now = EMBEDDED?.at ? Date.parse(EMBEDDED.at) : Date.now();
  const leased = (t) => missing(t.leased_until) || Date.parse(t.leased_until) > now;
  return trials.filter((t) => t.ending === "open" && leased(t));
}
