// The page: a list of jobs, one job, several side by side. Everything is built with textContent, so that what users
// typed is shown as text. Data comes from /api/v1, or from ZEUS_DATA where the page was written to a file.
"use strict";

const main = document.getElementById("main");
const EMBEDDED = window.ZEUS_DATA || null;
const ENDS = { converged: "good", open: "warm", stopped: "warm", not_converged: "bad", crashed: "bad", failed: "bad", lost: "soft", unfinished: "soft" };
const WORDS = { not_converged: "did not reach the target", stopped: "stopped early", converged: "reached", crashed: "crashed", lost: "lost", open: "running", failed: "failed", unfinished: "unfinished" };
const COLOURS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8a7f00", "#7a52c7", "#666666", "#a05a2c"];
const SYMBOLS = { converged: "circle", failed: "x", open: "circle-open", unfinished: "diamond-open" };

// ---------------------------------------------------------------- small things

function el(tag, props, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") for (const [event, handler] of Object.entries(value)) node.addEventListener(event, handler);
    else if (name === "class") node.className = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat()) if (child !== null && child !== undefined) node.append(child);
  return node;
}

function scaled(value, unit, steps) {
  if (value === null || value === undefined) return "unknown";
  for (const [factor, prefix] of steps) if (Math.abs(value) >= factor) return `${digits(value / factor)} ${prefix}${unit}`;
  return `${digits(value)} ${unit}`;
}
const digits = (value) => (value === 0 ? "0" : Math.abs(value) >= 100 ? value.toFixed(0) : value.toPrecision(3)).replace(/\.0+$/, "");
const joules = (value) => scaled(value, "J", [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]);
const percent = (share) => (share === null || share === undefined ? "unknown" : `${(100 * share).toFixed(1)} %`);
const watts = (value) => (value === null || value === undefined ? "" : `${digits(value)} W`);
const when = (text) => (text ? text.slice(0, 16).replace("T", " ") + " UTC" : "");
function duration(seconds) {
  if (seconds === null || seconds === undefined) return "unknown";
  if (seconds < 120) return `${digits(seconds)} s`;
  if (seconds < 7200) return `${digits(seconds / 60)} min`;
  if (seconds < 172800) return `${digits(seconds / 3600)} h`;
  return `${digits(seconds / 86400)} d`;
}
function tint(share) { return !share ? "" : share > 0 ? "good" : "bad"; }
function pill(ending) { return el("span", { class: `pill ${ENDS[ending] || ""}` }, WORDS[ending] || ending); }

function tile(name, value, small, kind) {
  return el("div", { class: "tile" }, el("dt", {}, name), el("dd", { class: kind }, value, small ? el("small", {}, small) : null));
}
function saved(saving, small) {
  if (!saving) return [tile("Saved energy", "not known yet", "the default has not run to its target yet")];
  const extra = [];
  if (saving.money !== null) extra.push(tile("Saved money", `${digits(saving.money)} ${saving.currency}`.trim(), null, tint(saving.money)));
  if (saving.gco2e !== null) extra.push(tile("Saved CO₂e", scaled(saving.gco2e, "g", [[1e6, "M"], [1e3, "k"]]), null, tint(saving.gco2e)));
  return [tile("Saved energy", joules(saving.joules), small || `${percent(saving.share)} of the default's, exploring included`, tint(saving.joules)), ...extra];
}

function table(caption, columns, rows, stack) {
  const head = el("tr", {}, columns.map((c) => el("th", { scope: "col", class: c.num ? "num" : null }, c.name)));
  const body = rows.map((row) => el("tr", {}, columns.map((c) => el("td", { class: c.class || (c.num ? "num" : null), "data-name": c.name }, c.show(row)))));
  return el("div", { class: "scroll" }, el("table", { class: stack ? "stack" : null }, caption ? el("caption", {}, caption) : null, el("thead", {}, head), el("tbody", {}, body)));
}

function spark(costs) {
  const known = costs.filter((c) => c !== null).slice(-60);
  if (known.length < 2) return el("span", {}, "");
  const least = Math.min(...known), most = Math.max(...known), span = most - least || 1;
  const points = known.map((c, i) => `${(2 + (116 * i) / (known.length - 1)).toFixed(1)},${(25 - (22 * (c - least)) / span).toFixed(1)}`);
  const ns = "http://www.w3.org/2000/svg", svg = document.createElementNS(ns, "svg"), path = document.createElementNS(ns, "path");
  svg.setAttribute("class", "spark"); svg.setAttribute("viewBox", "0 0 120 28"); svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", `cost of the last ${known.length} recurrences, from ${joules(known[0])} to ${joules(known[known.length - 1])}`);
  path.setAttribute("d", "M" + points.join("L")); svg.append(path);
  return svg;
}

// ---------------------------------------------------------------- data

class NeedsToken extends Error {}

// Sums of what is equal differ in their last digits; that is no saving.
function clean(saving) {
  if (!saving) return saving;
  const none = Math.abs(saving.share) < 1e-9;
  return none ? { ...saving, joules: 0, share: 0, money: saving.money === null ? null : 0, gco2e: saving.gco2e === null ? null : 0 } : saving;
}
function cleaned(job) { return { ...job, saving: clean(job.saving), recent_saving: clean(job.recent_saving) }; }

async function ask(path, options) {
  if (EMBEDDED) return embedded(path);
  const answer = await fetch(path, { headers: { Accept: "application/json" }, credentials: "same-origin", ...options });
  if (answer.status === 401) throw new NeedsToken();
  const data = answer.headers.get("content-type")?.includes("json") ? await answer.json() : await answer.text();
  if (!answer.ok) throw new Error(data?.error?.message || `the service answered ${answer.status}`);
  return data;
}

function embedded(path) {
  const url = new URL(path, "http://page/"), parts = url.pathname.split("/").map(decodeURIComponent);
  if (url.pathname === "/api/v1/summary") return EMBEDDED.summary;
  if (url.pathname === "/api/v1/jobs") {
    const q = (url.searchParams.get("q") || "").toLowerCase(), found = EMBEDDED.jobs.filter((job) => job.job.toLowerCase().includes(q));
    const offset = Number(url.searchParams.get("offset") || 0), limit = Number(url.searchParams.get("limit") || 50);
    return { total: found.length, offset, jobs: found.slice(offset, offset + limit) };
  }
  if (url.pathname === "/api/v1/pulse") return {};
  const job = EMBEDDED.full[parts[4]];
  if (!job) throw new Error(`job ${parts[4]} is not in this file`);
  if (parts[5] === "profiles") return EMBEDDED.profiles[parts[4]] || [];
  if (parts[5] === "trials") throw new Error("logs are not in this file");
  return job;
}
const of = (id) => `api/v1/jobs/${encodeURIComponent(id)}`;

// ---------------------------------------------------------------- plots

let drawn = [];
function ink(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim(); }
const narrow = () => window.innerWidth < 720;
function layout(x, y, more) {
  const axis = { gridcolor: ink("--line"), zerolinecolor: ink("--line"), linecolor: ink("--line"), automargin: true };
  return {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: ink("--ink"), family: "system-ui, sans-serif", size: 12 },
    margin: { l: 56, r: 12, t: 8, b: narrow() ? 110 : 78 }, hovermode: "closest", legend: { orientation: "h", yref: "container", y: 0, yanchor: "bottom", xref: "container", x: 0.5, xanchor: "center" },
    xaxis: { ...axis, title: { text: x } }, yaxis: { ...axis, title: { text: y } }, ...(more || {}),
  };
}
function plot(card, label, traces, shape) {
  const box = el("div", { class: "plot", role: "img", "aria-label": label });
  card.append(box);
  const draw = () => window.Plotly && Plotly.react(box, traces, shape(), { displayModeBar: false, responsive: true });
  drawn.push({ box, draw });
  return box;
}
function redraw() { for (const one of drawn) if (one.box.isConnected) one.draw(); }
function clear() {
  for (const one of drawn) if (window.Plotly) Plotly.purge(one.box);
  drawn = [];
  main.replaceChildren();
}
function colours(sizes) { return Object.fromEntries([...sizes].sort((a, b) => a - b).map((size, i) => [size, COLOURS[i % COLOURS.length]])); }
// Plotly reads a few tags in its labels; what users typed must not be among them.
function plain(text) { return String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;"); }

// ---------------------------------------------------------------- pages

let chosen = new Set();
const LIMIT = 50, TRIALS = 12;

async function showList(query) {
  const offset = Number(query.get("offset") || 0), q = query.get("q") || "";
  const [page, summary] = await Promise.all([ask(`api/v1/jobs?offset=${offset}&limit=${LIMIT}&q=${encodeURIComponent(q)}`), ask("api/v1/summary")]);
  return () => {
    crumbs([]);
    clear();
    main.append(el("h1", {}, "Recurring jobs"), el("p", { class: "lead" }, "Each recurrence of a job teaches its batch size and power limit. Savings are against the default batch size at the highest limit."));
    const tiles = el("dl", { class: "tiles" }, tile("Jobs", String(summary.jobs)), tile("Recurrences", String(summary.recurrences), `${summary.trials} trials`), tile("Energy used", joules(summary.joules)));
    const all = summary.saved_joules === null ? null : { joules: summary.saved_joules, share: summary.saved_share, money: summary.money, gco2e: summary.gco2e, currency: summary.currency };
    tiles.append(...saved(all));
    main.append(tiles);
    if (!summary.jobs) {
      main.append(el("div", { class: "card empty" }, el("p", {}, "No job has been registered yet."), el("p", {}, "Run one: ", el("code", {}, "zeus run job.toml"))));
      return;
    }
    const search = el("input", { type: "search", id: "q", value: q, placeholder: "part of a name", autocomplete: "off" });
    const button = el("button", { class: "main", type: "button", disabled: true, on: { click: () => { location.hash = `#/compare?${[...chosen].map((id) => `job=${encodeURIComponent(id)}`).join("&")}`; } } }, "Compare");
    const state = () => { button.disabled = chosen.size < 2; button.textContent = chosen.size ? `Compare ${chosen.size}` : "Compare"; };
    main.append(el("form", { class: "bar", role: "search", on: { submit: (event) => { event.preventDefault(); location.hash = `#/?q=${encodeURIComponent(search.value)}`; } } }, el("label", { for: "q" }, "Find", search), el("button", { type: "submit" }, "Find"), button));
    const box = (row) => el("input", { type: "checkbox", "aria-label": `choose ${row.job} to compare`, checked: chosen.has(row.job), on: { change: (event) => { event.target.checked ? chosen.add(row.job) : chosen.delete(row.job); state(); } } });
    main.append(table(`${page.total} ${page.total === 1 ? "job" : "jobs"}${q ? ` with “${q}” in the name` : ""}; choose two or more to compare`, [
      { name: "Compare", show: box },
      { name: "Job", class: "name", show: (row) => el("a", { href: `#/job/${encodeURIComponent(row.job)}` }, row.job) },
      { name: "Phase", show: (row) => el("span", { class: row.remark ? "bad" : "" }, row.phase) },
      { name: "Recurrences", num: true, show: (row) => (row.recurrences === null ? "" : String(row.recurrences)) },
      { name: "Batch size", num: true, show: (row) => (row.batch_size === null ? "" : String(row.batch_size)) },
      { name: "Saved so far", num: true, show: (row) => el("span", { class: row.saving ? tint(row.saving.joules) : "" }, row.saving ? joules(row.saving.joules) : "unknown") },
      { name: "Now, of the default", num: true, show: (row) => (row.recent_saving ? el("span", { class: tint(row.recent_saving.share) }, percent(1 - row.recent_saving.share)) : "") },
      { name: "Money", num: true, show: (row) => (row.saving && row.saving.money !== null ? `${digits(row.saving.money)} ${row.saving.currency}`.trim() : "") },
      { name: "CO₂e", num: true, show: (row) => (row.saving && row.saving.gco2e !== null ? scaled(row.saving.gco2e, "g", [[1e6, "M"], [1e3, "k"]]) : "") },
      { name: "Cost", show: (row) => spark(row.costs) },
    ], page.jobs.map(cleaned), true));
    for (const row of page.jobs) if (row.remark) main.append(el("p", { class: "note" }, `${row.job}: ${row.remark}`));
    if (page.total > LIMIT) {
      const to = (o) => `#/?offset=${o}&q=${encodeURIComponent(q)}`;
      main.append(el("nav", { class: "pages", "aria-label": "Pages" }, offset > 0 ? el("a", { href: to(Math.max(0, offset - LIMIT)) }, "Earlier") : null, `${offset + 1} to ${Math.min(page.total, offset + LIMIT)} of ${page.total}`, offset + LIMIT < page.total ? el("a", { href: to(offset + LIMIT) }, "Later") : null));
    }
    state();
  };
}

async function showJob(id) {
  const [told, profiles] = await Promise.all([ask(of(id)), ask(`${of(id)}/profiles/all`)]), job = cleaned(told);
  return () => {
    crumbs([[id, null]]);
    clear();
    main.append(el("h1", {}, job.job));
    main.append(el("p", { class: "lead" }, job.stuck ? el("span", { class: "bad" }, job.stuck) : job.next ? `Next: ${job.next.reason}.` : "It has not run yet."));
    const now = job.recent_saving;
    main.append(el("dl", { class: "tiles" },
      tile("Phase", job.phase, `policy ${job.policy}`), tile("Recurrences", String(job.recurrences), `${job.trials} trials`),
      tile("Batch size now", job.batch_size === null ? "none" : String(job.batch_size), `default ${job.spec.default_batch_size}`),
      tile("A recurrence now", now ? `${percent(1 - now.share)}` : "not known yet", now ? `of the default's energy; ${percent(1 - now.time_share)} of its time` : null, now ? tint(now.share) : null),
      ...saved(job.saving), tile("Energy used", joules(job.joules), job.unknown_tries ? `${job.unknown_tries} trials of unknown energy` : job.gpu_model)));
    const cards = el("div", { class: "cards" });
    main.append(cards);
    const sizes = colours(job.spec.batch_sizes);
    costCard(cards, job, sizes); beliefCard(cards, job, sizes); pathCard(cards, job, profiles, sizes); profileCard(cards, job, profiles, sizes); frontCard(cards, job, sizes); trialCard(cards, job);
    redraw();
  };
}

function card(cards, title, note, wide) {
  const node = el("section", { class: wide ? "card wide" : "card" }, el("h2", {}, title), note ? el("p", { class: "note" }, note) : null);
  cards.append(node);
  return node;
}
function dataTable(node, columns, rows) {
  node.append(el("details", { class: "data" }, el("summary", {}, "As a table"), table(null, columns, rows)));
}

function costCard(cards, job, sizes) {
  const node = card(cards, "Cost and energy by recurrence", "Cost is η·energy + (1−η)·maximum power·time, all tries of a recurrence together. Colour: batch size; shape: how it ended.", true);
  const traces = [];
  const known = job.history.filter((r) => r.cost !== null);
  if (job.default) traces.push({ x: [1, Math.max(2, job.recurrences)], y: [job.default.cost, job.default.cost], mode: "lines", name: "default", line: { dash: "dash", color: ink("--soft") }, hoverinfo: "skip" });
  traces.push({ x: known.map((r) => r.number), y: known.map((r) => r.cost), mode: "lines", line: { color: ink("--line"), width: 1.5 }, showlegend: false, hoverinfo: "skip" });
  for (const size of new Set(known.map((r) => r.batch_size))) {
    const rows = known.filter((r) => r.batch_size === size);
    traces.push({
      x: rows.map((r) => r.number), y: rows.map((r) => r.cost), mode: "markers", name: `size ${size}`,
      marker: { size: 9, color: sizes[size] || ink("--soft"), symbol: rows.map((r) => SYMBOLS[r.end] || "circle") },
      text: rows.map((r) => `recurrence ${r.number}: batch size ${r.batch_size}, ${plain(WORDS[r.end] || r.end)}<br>${joules(r.joules)}, ${duration(r.seconds)}, ${r.tries} ${r.tries === 1 ? "try" : "tries"}`), hovertemplate: "%{text}<br>cost %{y:.3s}J<extra></extra>",
    });
  }
  traces.push({ x: known.map((r) => r.number), y: known.map((r) => r.joules), mode: "lines", name: "energy", line: { color: ink("--good"), width: 1, dash: "dot" }, hovertemplate: "energy %{y:.3s}J<extra></extra>" });
  plot(node, `Cost of ${known.length} recurrences of ${job.job}`, traces, () => layout("recurrence", "joules", { yaxis: { ...layout("", "").yaxis, title: { text: "joules" }, rangemode: "tozero", exponentformat: "SI" } }));
  dataTable(node, [
    { name: "Recurrence", num: true, show: (r) => String(r.number) }, { name: "Ended", show: (r) => pill(r.end) }, { name: "Tries", num: true, show: (r) => String(r.tries) },
    { name: "Batch size", num: true, show: (r) => String(r.batch_size) }, { name: "Epochs", num: true, show: (r) => String(r.epochs) },
    { name: "Cost", num: true, show: (r) => joules(r.cost) }, { name: "Energy", num: true, show: (r) => joules(r.joules) }, { name: "Time", num: true, show: (r) => duration(r.seconds) },
  ], job.history);
}

function beliefCard(cards, job, sizes) {
  const node = card(cards, "What it believes of each batch size", "The mean cost of a run and one standard deviation of the belief about it, as it stands.");
  const known = job.sizes.filter((s) => s.mean !== null);
  plot(node, `Belief about the cost of each batch size of ${job.job}`, [{
    x: known.map((s) => String(s.batch_size)), y: known.map((s) => s.mean), type: "scatter", mode: "markers",
    error_y: { type: "data", array: known.map((s) => s.spread || 0), color: ink("--soft") },
    marker: { size: 11, color: known.map((s) => sizes[s.batch_size]), symbol: known.map((s) => (s.standing === "offered" ? "circle" : "x")) },
    text: known.map((s) => `batch size ${s.batch_size}: ${s.standing}, ${s.converged} of ${s.runs} runs reached the target`), hovertemplate: "%{text}<br>cost %{y:.3s}J<extra></extra>",
  }], () => layout("batch size", "cost, joules", { xaxis: { ...layout("", "").xaxis, type: "category", categoryorder: "array", categoryarray: job.spec.batch_sizes.map(String), title: { text: "batch size" } }, yaxis: { ...layout("", "").yaxis, title: { text: "cost, joules" }, exponentformat: "SI", rangemode: "tozero" } }));
  dataTable(node, [
    { name: "Batch size", num: true, show: (s) => String(s.batch_size) }, { name: "Standing", show: (s) => s.standing }, { name: "Reached", num: true, show: (s) => `${s.converged} of ${s.runs}` },
    { name: "Mean cost", num: true, show: (s) => joules(s.mean) }, { name: "Spread", num: true, show: (s) => (s.spread === null ? "unknown" : joules(s.spread)) }, { name: "Limit", num: true, show: (s) => watts(s.limit_watts) },
  ], job.sizes);
}

function pathCard(cards, job, profiles, sizes) {
  const node = card(cards, "The way through batch sizes and power limits", "Each point is a recurrence, at the batch size and limit it ended with; the later, the larger and the stronger its colour.");
  const limit = Object.fromEntries(job.sizes.map((s) => [s.batch_size, s.limit_watts]));
  const rows = job.history.filter((r) => limit[r.batch_size]);
  if (!rows.length) { node.append(el("p", { class: "note" }, "No batch size has a power profile yet.")); return; }
  plot(node, `Batch sizes and power limits that ${job.job} has chosen`, [{
    x: rows.map((r) => String(r.batch_size)), y: rows.map((r) => limit[r.batch_size]), mode: "lines+markers", line: { color: ink("--line"), width: 1 },
    marker: { size: rows.map((r, i) => 8 + (6 * i) / rows.length), color: rows.map((r) => r.number), colorscale: [[0, ink("--line")], [1, ink("--accent")]], line: { color: ink("--ink"), width: 0.6 }, colorbar: { title: { text: "recurrence" }, thickness: 10 } },
    text: rows.map((r) => `recurrence ${r.number}: ${r.batch_size}, ${limit[r.batch_size]} W, ${joules(r.cost)}`), hovertemplate: "%{text}<extra></extra>",
  }], () => layout("batch size", "power limit, watts", { xaxis: { ...layout("", "").xaxis, type: "category", categoryorder: "array", categoryarray: job.spec.batch_sizes.map(String), title: { text: "batch size" } } }));
}

function profileCard(cards, job, profiles, sizes) {
  const node = card(cards, "Power profile of each batch size", "Cost of a training step at each power limit, against the best one; the ring marks the chosen limit.");
  if (!profiles.length) { node.append(el("p", { class: "note" }, "Nothing has been profiled yet.")); return; }
  const eta = job.spec.eta_knob, traces = [];
  for (const one of profiles) {
    const rows = one.profile.measurements.map((m) => ({ limit: m.power_limit, step: (eta * m.energy + (1 - eta) * (job.max_watts || m.power_limit) * m.time) / (m.steps || 1), joules: m.energy / (m.steps || 1), seconds: m.time / (m.steps || 1) })).sort((a, b) => a.limit - b.limit);
    const least = Math.min(...rows.map((r) => r.step)), size = one.key.batch_size, name = profiles.every((p) => p.key.gpu_model === profiles[0].key.gpu_model) ? `${size}` : `${size}, ${plain(one.key.gpu_model)}`;
    traces.push({
      x: rows.map((r) => r.limit), y: rows.map((r) => r.step / least), mode: "lines+markers", name, line: { color: sizes[size] }, marker: { size: rows.map((r) => (r.limit === one.best_limit ? 13 : 5)), symbol: rows.map((r) => (r.limit === one.best_limit ? "circle-open-dot" : "circle")) },
      text: rows.map((r) => `${size} at ${r.limit} W: ${joules(r.joules)} and ${(1000 * r.seconds).toPrecision(3)} ms a step`), hovertemplate: "%{text}<br>%{y:.3f} of the best<extra></extra>",
    });
  }
  plot(node, `Power profiles of ${job.job}`, traces, () => layout("power limit, watts", "cost of a step / best"));
}

function frontCard(cards, job, sizes) {
  const node = card(cards, "Time against energy", "What a run would take at each batch size and power limit: expected epochs times a profiled epoch. The line is the Pareto front; the star is the default.");
  const rows = job.points || [];
  if (!rows.length) { node.append(el("p", { class: "note" }, "Not enough is known yet: a batch size must have been profiled and have reached the target.")); return; }
  const traces = [];
  for (const size of new Set(rows.map((r) => r.batch_size))) {
    const some = rows.filter((r) => r.batch_size === size);
    traces.push({ x: some.map((r) => r.seconds), y: some.map((r) => r.joules), mode: "markers", name: `${size}`, marker: { color: sizes[size], size: 8, opacity: 0.85 }, text: some.map((r) => `${r.batch_size} at ${r.limit_watts} W`), hovertemplate: "%{text}<br>%{x:.3s}s, %{y:.3s}J<extra></extra>" });
  }
  const front = rows.filter((r) => r.on_front).sort((a, b) => a.seconds - b.seconds);
  traces.push({ x: front.map((r) => r.seconds), y: front.map((r) => r.joules), mode: "lines", name: "front", line: { color: ink("--ink"), width: 1.2 }, hoverinfo: "skip" });
  const usual = rows.filter((r) => r.is_default);
  traces.push({ x: usual.map((r) => r.seconds), y: usual.map((r) => r.joules), mode: "markers", name: "default", marker: { symbol: "star", size: 16, color: ink("--bad"), line: { color: ink("--card"), width: 1 } }, hovertemplate: "default: %{x:.3s}s, %{y:.3s}J<extra></extra>" });
  plot(node, `Time and energy of ${job.job} by batch size and power limit`, traces, () => layout("time to the target, seconds", "energy to the target, joules", { xaxis: { ...layout("", "").xaxis, title: { text: "time to the target, seconds" }, exponentformat: "SI" }, yaxis: { ...layout("", "").yaxis, title: { text: "energy to the target, joules" }, exponentformat: "SI" } }));
}

function trialCard(cards, job) {
  const node = card(cards, "Trials", null, true);
  const filter = { ending: "", size: "", text: "" };
  const ends = [...new Set(job.tries.map((t) => t.ending))], sizes = [...new Set(job.tries.map((t) => t.batch_size))].sort((a, b) => a - b);
  const pick = (name, label, values, show) => el("label", {}, label, el("select", { on: { change: (event) => { filter[name] = event.target.value; offset = 0; fill(); } } }, el("option", { value: "" }, "all"), values.map((v) => el("option", { value: v }, show ? show(v) : String(v)))));
  const text = el("input", { type: "search", placeholder: "in the reason", on: { input: (event) => { filter.text = event.target.value.toLowerCase(); offset = 0; fill(); } } });
  const body = el("div", {}), log = el("div", { "aria-live": "polite" });
  let offset = 0;
  node.append(el("div", { class: "bar" }, pick("ending", "Ended", ends, (v) => WORDS[v] || v), pick("size", "Batch size", sizes), el("label", {}, "Search", text)), body, log);
  const openLog = async (trial) => {
    try { log.replaceChildren(el("h2", {}, `Log of trial ${trial.number}`), el("pre", { class: "log", tabindex: "0" }, (await ask(`${of(job.job)}/trials/${trial.number}/log`)).log)); }
    catch (wrong) { log.replaceChildren(el("p", { class: "note" }, `Log of trial ${trial.number}: ${wrong.message}`)); }
    log.scrollIntoView({ block: "nearest" });
  };
  function fill() {
    const rows = [...job.tries].reverse().filter((t) => (!filter.ending || t.ending === filter.ending) && (!filter.size || String(t.batch_size) === filter.size) && (!filter.text || t.reason.toLowerCase().includes(filter.text)));
    body.replaceChildren(table(`${rows.length} of ${job.tries.length} trials, the latest first`, [
      { name: "Trial", num: true, show: (t) => String(t.number) }, { name: "Recurrence", num: true, show: (t) => `${t.recurrence}${t.attempt > 1 ? ` (try ${t.attempt})` : ""}` },
      { name: "Batch size", num: true, show: (t) => String(t.batch_size) }, { name: "Ended", show: (t) => pill(t.ending) }, { name: "Epochs", num: true, show: (t) => (t.epochs === null ? "" : String(t.epochs)) },
      { name: "Metric", num: true, show: (t) => (t.metric === null ? "" : digits(t.metric)) }, { name: "Energy", num: true, show: (t) => (t.joules === null ? "unknown" : joules(t.joules)) }, { name: "Time", num: true, show: (t) => (t.seconds === null ? "" : duration(t.seconds)) },
      { name: "Cost", num: true, show: (t) => (t.cost === null ? "unknown" : joules(t.cost)) }, { name: "Bound", num: true, show: (t) => (t.cost_limit === null ? "none" : joules(t.cost_limit)) },
      { name: "Why", class: "reason", show: (t) => t.reason }, { name: "Asked", class: "time", show: (t) => when(t.asked_at) },
      { name: "Log", show: (t) => (EMBEDDED ? "" : el("button", { type: "button", "aria-label": `log of trial ${t.number}`, on: { click: () => openLog(t) } }, "Log")) },
    ], rows.slice(offset, offset + TRIALS), true));
    if (rows.length > TRIALS) {
      const go = (to) => { offset = to; fill(); };
      body.append(el("div", { class: "pages" }, el("button", { type: "button", disabled: offset === 0, on: { click: () => go(Math.max(0, offset - TRIALS)) } }, "Later"), `${offset + 1} to ${Math.min(rows.length, offset + TRIALS)}`, el("button", { type: "button", disabled: offset + TRIALS >= rows.length, on: { click: () => go(offset + TRIALS) } }, "Earlier")));
    }
  }
  fill();
}

async function showCompare(query) {
  const ids = query.getAll("job");
  const jobs = (await Promise.all(ids.map((id) => ask(of(id))))).map(cleaned);
  return () => {
    crumbs([["Compare", null]]);
    clear();
    main.append(el("h1", {}, `${jobs.length} jobs side by side`), el("p", { class: "lead" }, "Cost of each recurrence over that of the job's own default, so that jobs of any size can be laid on one another."));
    const cards = el("div", { class: "cards" });
    main.append(cards);
    const node = card(cards, "Cost by recurrence, of the default", null, true);
    plot(node, `Relative cost of ${ids.length} jobs`, jobs.map((job, i) => {
      const rows = job.history.filter((r) => r.cost !== null), base = job.default ? job.default.cost : rows.length ? rows[0].cost : 1;
      return { x: rows.map((r) => r.number), y: rows.map((r) => r.cost / base), mode: "lines+markers", name: plain(job.job) + (job.default ? "" : " (of its first)"), line: { color: COLOURS[i % COLOURS.length] }, hovertemplate: "%{y:.3f}<extra>%{fullData.name}</extra>" };
    }), () => layout("recurrence", "cost / default", { yaxis: { ...layout("", "").yaxis, title: { text: "cost / default" }, rangemode: "tozero" } }));
    const columns = [{ name: "", class: "name", show: (row) => row[0] }, ...jobs.map((job) => ({ name: job.job, show: (row) => row[1](job) }))];
    main.append(el("h2", {}, " "), table("What they have come to", columns, [
      ["Phase", (j) => j.phase], ["Policy", (j) => j.policy], ["GPU", (j) => j.gpu_model || ""], ["Recurrences", (j) => String(j.recurrences)],
      ["Batch size now", (j) => (j.batch_size === null ? "none" : String(j.batch_size))], ["Default", (j) => String(j.spec.default_batch_size)],
      ["A recurrence now, of the default's energy", (j) => (j.recent_saving ? percent(1 - j.recent_saving.share) : "not known yet")],
      ["... of its time", (j) => (j.recent_saving ? percent(1 - j.recent_saving.time_share) : "not known yet")],
      ["Saved so far", (j) => (j.saving ? joules(j.saving.joules) : "not known yet")], ["Energy used", (j) => joules(j.joules)],
      ["η, β, window", (j) => `${j.spec.eta_knob}, ${j.spec.beta_knob}, ${j.spec.window_size || "all"}`],
    ]));
    redraw();
  };
}

function showLogin(message) {
  crumbs([]);
  clear();
  const token = el("input", { type: "password", id: "token", autocomplete: "current-password", required: true }), said = el("p", { class: "bad", role: "alert" }, message || "");
  const submit = async (event) => {
    event.preventDefault();
    const answer = await fetch("login", { method: "POST", headers: { "Content-Type": "application/json" }, credentials: "same-origin", body: JSON.stringify({ token: token.value.trim() }) });
    if (answer.ok) { document.getElementById("logout").hidden = false; go(true); } else said.textContent = (await answer.json()).error?.message || "not accepted";
  };
  main.append(el("form", { class: "card login", on: { submit } }, el("h1", {}, "Zeus"), el("label", { for: "token" }, "Token (see zeus token create)"), token, el("button", { class: "main", type: "submit" }, "Log in"), said));
  token.focus();
}

// ---------------------------------------------------------------- moving about

function crumbs(parts) {
  const list = document.getElementById("crumbs");
  list.replaceChildren(el("li", {}, el("a", { href: "#/" }, "Jobs")), ...parts.map(([name]) => el("li", { "aria-current": "page" }, name)));
  document.title = parts.length ? `${parts[parts.length - 1][0]} · Zeus` : "Zeus";
}

let asked = 0;
async function go(focus) {
  const mine = ++asked, [path, query] = location.hash.replace(/^#/, "").split("?");
  const search = new URLSearchParams(query || ""), parts = path.split("/").map((part) => { try { return decodeURIComponent(part); } catch { return part; } });
  try {
    const before = await pulse(); // first, so that what changes while the page is fetched is seen at the next beat
    const show = parts[1] === "job" ? await showJob(parts.slice(2).join("/")) : parts[1] === "compare" ? await showCompare(search) : await showList(search);
    if (mine !== asked) return; // the user has gone elsewhere meanwhile
    show();
    last = before;
    if (focus) { main.focus({ preventScroll: true }); window.scrollTo(0, 0); }
    document.getElementById("live").textContent = !EMBEDDED ? "live" : EMBEDDED.at ? `as of ${when(EMBEDDED.at)}` : "";
  } catch (wrong) {
    if (mine !== asked) return;
    if (wrong instanceof NeedsToken) { showLogin(); return; }
    clear();
    crumbs([]);
    main.append(el("div", { class: "card empty", role: "alert" }, el("p", { class: "bad" }, wrong.message), el("p", {}, el("a", { href: "#/" }, "All jobs"))));
  }
}

let last = null;
const BEAT = 3000;
async function pulse() { return JSON.stringify(await ask("api/v1/pulse")); }
async function beat() {
  try {
    const now = await pulse();
    const busy = main.contains(document.activeElement) && ["INPUT", "SELECT"].includes(document.activeElement.tagName);
    const hadLog = main.querySelector("pre.log");
    if (last !== null && now !== last && !busy && !hadLog) { const y = window.scrollY; await go(false); window.scrollTo(0, y); }
    document.getElementById("live").textContent = "live";
  } catch (wrong) {
    document.getElementById("live").textContent = wrong instanceof NeedsToken ? "" : "the service does not answer";
  }
}

function theme(name) {
  document.documentElement.dataset.theme = name;
  document.getElementById("theme").textContent = name === "dark" ? "Light" : "Dark";
  try { localStorage.setItem("zeus-theme", name); } catch { /* a page in a file may keep nothing */ }
}
let kept = null;
try { kept = localStorage.getItem("zeus-theme"); } catch { /* as above */ }
theme(kept || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"));
document.getElementById("theme").addEventListener("click", () => { theme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"); go(false); });
document.getElementById("logout").addEventListener("click", async () => { await fetch("logout", { method: "POST", credentials: "same-origin" }); document.getElementById("logout").hidden = true; showLogin(); });
window.addEventListener("hashchange", () => go(true));
if (!EMBEDDED) setInterval(() => { if (!document.hidden) beat(); }, BEAT);
go(false);
