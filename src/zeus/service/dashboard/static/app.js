// The page: a list of jobs, one job, several side by side. Everything is built with textContent, so that what users
// typed is shown as text. Data comes from /api/v1, or from ZEUS_DATA where the page was written to a file.
// The service may be older than this script: a field that is missing counts as unknown.
"use strict";

const main = document.getElementById("main");
const logoutButton = document.getElementById("logout");
const EMBEDDED = window.ZEUS_DATA || null;
const ENDING_CLASSES = {
  converged: "good",
  open: "warm",
  stopped: "warm",
  not_converged: "bad",
  crashed: "bad",
  failed: "bad",
  lost: "soft",
  unfinished: "soft",
};
const ENDINGS = {
  not_converged: "did not reach the target",
  stopped: "stopped early",
  converged: "reached",
  crashed: "crashed",
  lost: "lost",
  open: "running",
  failed: "failed",
  unfinished: "unfinished",
};
const SYMBOLS = { converged: "circle", failed: "x", open: "circle-open", unfinished: "diamond-open" };
const COLOURS = [
  "#0072b2",
  "#e69f00",
  "#009e73",
  "#cc79a7",
  "#56b4e9",
  "#d55e00",
  "#8a7f00",
  "#7a52c7",
  "#666666",
  "#a05a2c",
];

function el(tag, props, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props || {})) {
    if (missing(value) || value === false) continue;
    if (name === "on") for (const [event, handler] of Object.entries(value)) node.addEventListener(event, handler);
    else if (name === "class") node.className = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat()) if (!missing(child)) node.append(child);
  return node;
}
function missing(value) {
  return value === null || value === undefined;
}

// ---------------------------------------------------------------- numbers for people

// Three digits at most, never an exponent.
function digits(value, most = 3) {
  const rounded = Number(value.toPrecision(most)),
    size = Math.abs(rounded);
  if (size === 0) return "0";
  if (size < 0.001) return "less than 0.001";
  const places = Math.max(0, most - 1 - Math.floor(Math.log10(size)));
  const text = rounded.toFixed(places);
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

// The largest unit that the value reaches; the last one takes the rest.
function unitOf(value, units) {
  const size = Math.abs(value);
  return units.find((unit) => size >= unit.from) || units[units.length - 1];
}
function inUnits(value, units, most) {
  if (missing(value)) return "unknown";
  const unit = unitOf(value, units);
  return `${digits(value / unit.factor, most)} ${unit.name}`;
}
const ENERGY = [
  { name: "MWh", factor: 3.6e9, from: 3.6e9 },
  { name: "kWh", factor: 3.6e6, from: 3.6e5 },
  { name: "kJ", factor: 1e3, from: 999.5 },
  { name: "J", factor: 1, from: 0 },
];
const TIME = [
  { name: "d", factor: 86400, from: 172800 },
  { name: "h", factor: 3600, from: 7200 },
  { name: "min", factor: 60, from: 120 },
  { name: "s", factor: 1, from: 0 },
];
const MASS = [
  { name: "t", factor: 1e6, from: 999500 },
  { name: "kg", factor: 1e3, from: 999.5 },
  { name: "g", factor: 1, from: 0 },
];
const energy = (value) => inUnits(value, ENERGY);
const duration = (value) => inUnits(value, TIME);
const mass = (value) => inUnits(value, MASS);
const watts = (value) => (missing(value) ? "" : `${digits(value)} W`);
const number = (value) => (missing(value) ? "" : String(value));
const metricText = (value) => (missing(value) ? "" : String(Number(value.toPrecision(4))));
const when = (text) => (text ? `${text.slice(0, 16).replace("T", " ")} UTC` : "");
const count = (n, noun) => `${n} ${noun}${n === 1 ? "" : "s"}`;

// How large a share is, without its sign: words around it say which way it went.
function percent(share) {
  const size = 100 * Math.abs(share);
  return size < 0.05 ? "less than 0.1 %" : `${size.toFixed(size < 9.95 ? 1 : 0)} %`;
}

function money(amount, currency) {
  const text = amount === 0 ? "0" : amount < 0.01 ? "less than 0.01" : amount.toFixed(amount < 1000 ? 2 : 0);
  return `${text} ${currency || ""}`.trim();
}

// ---------------------------------------------------------------- savings in words

const LIMITS_UNKNOWN = "as it ran: the default's power limits are not known";

// " (measured, ±1.2 kJ)"; nothing where neither is known.
function certainty(basis, error) {
  const parts = basis === "measured" || basis === "estimated" ? [basis] : [];
  if (!missing(error)) parts.push(`±${inUnits(error, ENERGY, 2)}`);
  if (basis === "as_it_ran") parts.push(LIMITS_UNKNOWN);
  return parts.length ? ` (${parts.join(basis === "as_it_ran" ? "; " : ", ")})` : "";
}

// 1: saved energy, -1: used more, 0: no difference that can be told from noise.
function direction(saving) {
  if (!saving?.joules || Math.abs(saving.joules) < 2 * (saving.joules_error || 0)) return 0;
  return Math.sign(saving.joules);
}
const tint = (saving) => ["bad", "", "good"][direction(saving) + 1];

// The service says it, in the words of the command line. Data of an older one have no sentence.
function savingText(saving) {
  if (!saving) return "not known yet";
  return saving.sentence || `${saving.share < 0 ? "used more" : "saved"} ${percent(saving.share)} energy`;
}

function defaultText(job) {
  const usual = job.default;
  if (!usual) return `not known: ${job.default_why_not}`;
  const runs = usual.runs_measured ? `, ${count(usual.runs_measured, "run")} measured` : "";
  return (
    `${energy(usual.joules)} and ${duration(usual.seconds)} per run` +
    `${certainty(usual.basis, usual.joules_error)}${runs}`
  );
}

// "0.42 EUR and 4.2 g CO₂e less"; nothing where no price is set, or no difference is seen.
function worthText(saving) {
  const way = direction(saving),
    parts = [];
  if (way === 0) return "";
  if (!missing(saving.money)) parts.push(money(Math.abs(saving.money), saving.currency));
  if (!missing(saving.gco2e)) parts.push(`${mass(Math.abs(saving.gco2e))} CO₂e`);
  return parts.length ? `${parts.join(" and ")} ${way > 0 ? "less" : "more"}` : "";
}

// "0.02 kWh, 0.42 EUR, 4.2 g CO₂e"; nothing where neither price nor intensity is given. Unknown is said, never 0.
function usedWorth(footprint) {
  if (!footprint) return [];
  const parts = [];
  const add = (name, noun, rate, show) => {
    const share = footprint[`${name}_covers`],
      whole = footprint[name],
      part = footprint[`known_${name}`];
    if (missing(share)) return;
    if (!missing(whole)) parts.push(show(whole));
    else if (missing(part)) parts.push(`${noun} unknown`);
    else parts.push(`${show(part)} for ${percent(share)} of it (the ${rate} of the rest is unknown)`);
  };
  add("money", "money", "price", (amount) => money(amount, footprint.currency));
  add("gco2e", "CO₂e", "intensity", (amount) => `${mass(amount)} CO₂e`);
  if (!parts.length) return [];
  const kwh = missing(footprint.kwh) ? [] : [`${digits(footprint.kwh)} kWh`];
  const by = footprint.hours_by === "time" ? "; the energy of an hour is estimated from the time" : "";
  return [`${[...kwh, ...parts].join(", ")}${by}`];
}

// ---------------------------------------------------------------- pieces

function pill(ending) {
  return el("span", { class: `pill ${ENDING_CLASSES[ending] || ""}` }, ENDINGS[ending] || ending);
}

function tile(name, value, small, kind, wide) {
  const notes = [small]
    .flat()
    .filter(Boolean)
    .map((line) => el("small", {}, line));
  return el("div", { class: wide ? "tile wide" : "tile" }, el("dt", {}, name), el("dd", { class: kind }, value, notes));
}

// The tiles of a saving: energy in words, then money and CO₂e where they have a price.
function savingTiles(name, saving, notes) {
  if (!saving) return [tile(name, "not known yet", notes, null, true)];
  const way = direction(saving),
    tiles = [tile(name, savingText(saving), notes, tint(saving), true)];
  const add = (label, amount, show) => {
    if (way === 0 || missing(amount)) return;
    tiles.push(tile(`${way > 0 ? "Saved" : "Extra"} ${label}`, show(Math.abs(amount)), null, tint(saving)));
  };
  add("money", saving.money, (amount) => money(amount, saving.currency));
  add("CO₂e", saving.gco2e, mass);
  return tiles;
}

function table(caption, columns, rows, stack) {
  const kind = (c) => c.class || (c.num ? "num" : null);
  const head = el(
    "tr",
    {},
    columns.map((c) => el("th", { scope: "col", class: c.num ? "num" : null }, c.name)),
  );
  const cell = (row) => (c) => el("td", { class: kind(c), "data-name": c.name }, c.show(row));
  const body = rows.map((row) => el("tr", {}, columns.map(cell(row))));
  return el(
    "div",
    { class: "scroll" },
    el(
      "table",
      { class: stack ? "stack" : null },
      caption ? el("caption", {}, caption) : null,
      el("thead", {}, head),
      el("tbody", {}, body),
    ),
  );
}

function twoLines(first, ...more) {
  return [first, ...more.filter(Boolean).map((line) => el("small", {}, line))];
}

function spark(costs) {
  const known = (costs || []).filter((c) => !missing(c)).slice(-60),
    last = known.length - 1;
  if (last < 1) return el("span", {}, "");
  const least = Math.min(...known),
    span = Math.max(...known) - least || 1;
  const x = (i) => (2 + (116 * i) / last).toFixed(1),
    y = (c) => (25 - (22 * (c - least)) / span).toFixed(1);
  const ns = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(ns, "svg"),
    path = document.createElementNS(ns, "path");
  const label = `cost of the last ${known.length} recurrences, from ${energy(known[0])} to ${energy(known[last])}`;
  const attributes = { class: "spark", viewBox: "0 0 120 28", role: "img", "aria-label": label };
  for (const [name, value] of Object.entries(attributes)) svg.setAttribute(name, value);
  path.setAttribute("d", `M${known.map((c, i) => `${x(i)},${y(c)}`).join("L")}`);
  svg.append(path);
  return svg;
}

// ---------------------------------------------------------------- data

class NeedsToken extends Error {}

async function ask(path) {
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
const pathOf = (id) => `api/v1/jobs/${encodeURIComponent(id)}`;

// Trials that run now. A service that does not list them still shows them as open; one whose lease lapsed is lost.
function runningTrials(job) {
  return job.running || stillOpen(job.tries || []);
}
function stillOpen(trials) {
  const now = EMBEDDED?.at ? Date.parse(EMBEDDED.at) : Date.now();
  const leased = (t) => missing(t.leased_until) || Date.parse(t.leased_until) > now;
  return trials.filter((t) => t.ending === "open" && leased(t));
}

// ---------------------------------------------------------------- plots

let drawn = [];
function ink(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}
const narrow = () => window.innerWidth < 720;

function layout(x, y) {
  const line = ink("--line");
  const axis = { gridcolor: line, zerolinecolor: line, linecolor: line, automargin: true };
  const bottom = { yref: "container", y: 0, yanchor: "bottom", xref: "container", x: 0.5, xanchor: "center" };
  const named = (one) => ({ ...axis, ...one, title: { text: one.title } });
  return {
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    hovermode: "closest",
    font: { color: ink("--ink"), family: "system-ui, sans-serif", size: 12 },
    margin: { l: 56, r: 12, t: 8, b: narrow() ? 110 : 78 },
    legend: { orientation: "h", ...bottom },
    xaxis: named(x),
    yaxis: named(y),
  };
}

// Recurrences are whole, so their ticks are.
function wholeStep(span) {
  const room = narrow() ? 5 : 12;
  for (let decade = 1; ; decade *= 10) for (const n of [1, 2, 5]) if (span / (n * decade) <= room) return n * decade;
}
function recurrenceAxis(most) {
  const margin = Math.max(0.5, 0.02 * most);
  return { title: "recurrence", range: [1 - margin, most + margin], tick0: 0, dtick: wholeStep(most), tickformat: "d" };
}
function categories(title, values) {
  return { title, type: "category", categoryorder: "array", categoryarray: values.map(String) };
}

// Limits are set in steps of 25 W.
function limitAxis(values) {
  const least = Math.min(...values),
    most = Math.max(...values),
    span = most - least;
  const dtick = span <= 200 ? 25 : span <= 500 ? 50 : 100;
  return { title: "power limit, watts", range: [least - dtick, most + dtick], tick0: 0, dtick };
}

function plot(card, label, traces, shape) {
  const box = el("div", { class: "plot", role: "img", "aria-label": label });
  card.append(box);
  const zoomed = (change) => {
    if (!("xaxis.range[0]" in change || "xaxis.autorange" in change)) return;
    const [from, to] = box.layout.xaxis.range;
    Plotly.relayout(box, { "xaxis.dtick": wholeStep(to - from) });
  };
  const draw = () => {
    if (!window.Plotly) return;
    const first = !box.on;
    Plotly.react(box, traces, shape(), { displayModeBar: false, responsive: true });
    if (first && box.layout.xaxis.tickformat === "d") box.on("plotly_relayout", zoomed);
  };
  drawn.push({ box, draw });
  return box;
}
function redraw() {
  for (const one of drawn) if (one.box.isConnected) one.draw();
}
function clear() {
  for (const one of drawn) if (window.Plotly) Plotly.purge(one.box);
  drawn = [];
  running = null;
  main.replaceChildren();
}
function colours(sizes) {
  return Object.fromEntries([...sizes].sort((a, b) => a - b).map((size, i) => [size, COLOURS[i % COLOURS.length]]));
}
// Plotly reads a few tags in its labels; what users typed must not be among them.
function plain(text) {
  return String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
}

// The unit for an axis, from the largest of its values.
function axisUnit(values, units) {
  return unitOf(Math.max(0, ...values.filter((v) => !missing(v))), units);
}
const within = (values, unit) => values.map((v) => (missing(v) ? null : v / unit.factor));

// ---------------------------------------------------------------- the list of jobs

const chosen = new Set();
const LIMIT = 50,
  TRIALS = 12;

function listQuery(query) {
  return `offset=${Number(query.get("offset") || 0)}&limit=${LIMIT}&q=${encodeURIComponent(query.get("q") || "")}`;
}
async function showList(query) {
  const offset = Number(query.get("offset") || 0),
    q = query.get("q") || "";
  const [page, summary] = await Promise.all([ask(`api/v1/jobs?${listQuery(query)}`), ask("api/v1/summary")]);
  return () => {
    crumbs([]);
    clear();
    main.append(
      el("h1", {}, "Recurring jobs"),
      el(
        "p",
        { class: "lead" },
        "Zeus learns from each recurrence which batch size and power limit cost least. " +
          "Savings are relative to the default batch size at the highest power limit.",
      ),
    );
    main.append(summaryTiles(summary));
    if (!summary.jobs) {
      main.append(
        el(
          "div",
          { class: "card empty" },
          el("p", {}, "No job has been registered yet."),
          el("p", {}, "Run one: ", el("code", {}, "zeus run job.toml")),
        ),
      );
      return;
    }
    const compare = compareButton();
    main.append(searchForm(q, compare.button), jobTable(page, q, compare.update));
    for (const row of page.jobs) if (row.remark) main.append(el("p", { class: "note" }, `${row.job}: ${row.remark}`));
    if (page.total > LIMIT) main.append(listPages(page.total, offset, q));
    compare.update();
  };
}

function summaryTiles(summary) {
  const tiles = el(
    "dl",
    { class: "tiles" },
    tile("Jobs", String(summary.jobs)),
    tile("Recurrences", String(summary.recurrences), count(summary.trials, "trial")),
    tile("Energy used", energy(summary.joules), usedWorth(summary.footprint)),
  );
  const saving = missing(summary.saved_joules)
    ? null
    : {
        joules: summary.saved_joules,
        share: summary.saved_share,
        joules_error: summary.saved_joules_error,
        sentence: summary.saved_sentence,
        money: summary.money,
        gco2e: summary.gco2e,
        currency: summary.currency,
      };
  const notes = [];
  if (summary.uncounted) notes.push(`${count(summary.uncounted, "job")} not read yet`);
  const known = summary.jobs_with_saving;
  if (!missing(known) && known < summary.jobs) notes.push(`known for ${known} of ${count(summary.jobs, "job")}`);
  tiles.append(...savingTiles("Saved energy", saving, notes.join("; ")));
  return tiles;
}

function compareButton() {
  const query = () => [...chosen].map((id) => `job=${encodeURIComponent(id)}`).join("&");
  const open = () => {
    location.hash = `#/compare?${query()}`;
  };
  const button = el("button", { class: "main", type: "button", disabled: true, on: { click: open } }, "Compare");
  const update = () => {
    button.disabled = chosen.size < 2;
    button.textContent = chosen.size ? `Compare ${chosen.size}` : "Compare";
  };
  return { button, update };
}

function searchForm(q, button) {
  const search = el("input", { type: "search", id: "q", value: q, placeholder: "part of a name", autocomplete: "off" });
  const submit = (event) => {
    event.preventDefault();
    location.hash = `#/?q=${encodeURIComponent(search.value)}`;
  };
  return el(
    "form",
    { class: "bar", role: "search", on: { submit } },
    el("label", { for: "q" }, "Find", search),
    el("button", { type: "submit" }, "Find"),
    button,
  );
}

function jobTable(page, q, update) {
  const box = (row) => {
    const change = (event) => {
      event.target.checked ? chosen.add(row.job) : chosen.delete(row.job);
      update();
    };
    const label = `choose ${row.job} to compare`;
    return el("input", { type: "checkbox", "aria-label": label, checked: chosen.has(row.job), on: { change } });
  };
  const size = (row) => {
    const sizes = (row.running || []).map((t) => t.batch_size);
    return sizes.length ? twoLines(sizes.join(", "), "running") : number(row.batch_size);
  };
  const words = (saving) => el("span", { class: tint(saving) }, savingText(saving));
  const columns = [
    { name: "Compare", show: box },
    { name: "Job", class: "name", show: (row) => el("a", { href: `#/job/${encodeURIComponent(row.job)}` }, row.job) },
    { name: "Phase", show: (row) => el("span", { class: row.remark ? "bad" : "" }, row.phase) },
    { name: "Recurrences", num: true, show: (row) => number(row.recurrences) },
    { name: "Batch size", num: true, show: size },
    { name: "Saved so far", class: "words", show: (row) => twoLines(words(row.saving), worthText(row.saving)) },
    { name: "Latest recurrences", class: "words", show: (row) => words(row.recent_saving) },
    { name: "Cost", show: (row) => spark(row.costs) },
  ];
  const named = q ? ` with “${q}” in the name` : "";
  return table(`${count(page.total, "job")}${named}; choose two or more to compare`, columns, page.jobs, true);
}

function listPages(total, offset, q) {
  const link = (to, text) => el("a", { href: `#/?offset=${to}&q=${encodeURIComponent(q)}` }, text);
  return el(
    "nav",
    { class: "pages", "aria-label": "Pages" },
    offset > 0 ? link(Math.max(0, offset - LIMIT), "Earlier") : null,
    `${offset + 1} to ${Math.min(total, offset + LIMIT)} of ${total}`,
    offset + LIMIT < total ? link(offset + LIMIT, "Later") : null,
  );
}

// ---------------------------------------------------------------- one job

async function showJob(id) {
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
async function refreshRunning() {
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

function card(cards, title, note, wide) {
  const node = el("section", { class: wide ? "card wide" : "card" }, el("h2", {}, title));
  if (note) node.append(el("p", { class: "note" }, note));
  cards.append(node);
  return node;
}
function remark(node, text) {
  node.append(el("p", { class: "note" }, text));
}
function dataTable(node, columns, rows) {
  node.append(el("details", { class: "data" }, el("summary", {}, "As a table"), table(null, columns, rows)));
}

function costCard(cards, job, sizes) {
  const node = card(
    cards,
    "Cost by recurrence",
    "Cost is η·energy + (1−η)·maximum power·time, over all trials of " +
      "a recurrence. The colour is the batch size, the shape says how it ended.",
    true,
  );
  const known = job.history.filter((r) => !missing(r.cost)),
    most = Math.max(2, job.recurrences);
  const unit = axisUnit([...known.map((r) => r.cost), job.default?.cost], ENERGY);
  const numbers = (rows) => rows.map((r) => r.number),
    costs = (rows) =>
      within(
        rows.map((r) => r.cost),
        unit,
      );
  const traces = [];
  if (job.default && !missing(job.default.cost))
    traces.push({
      x: [1, most],
      y: within([job.default.cost, job.default.cost], unit),
      mode: "lines",
      name: "default",
      line: { dash: "dash", color: ink("--soft") },
      hoverinfo: "skip",
    });
  traces.push({
    x: numbers(known),
    y: costs(known),
    mode: "lines",
    line: { color: ink("--line"), width: 1.5 },
    showlegend: false,
    hoverinfo: "skip",
  });
  const text = (r) =>
    `recurrence ${r.number}: batch size ${r.batch_size}, ${plain(ENDINGS[r.end] || r.end)}<br>` +
    `cost ${energy(r.cost)}, energy ${energy(r.joules)}, ${duration(r.seconds)}, ` +
    count(r.tries, "trial");
  for (const size of new Set(known.map((r) => r.batch_size))) {
    const rows = known.filter((r) => r.batch_size === size),
      symbol = rows.map((r) => SYMBOLS[r.end] || "circle");
    traces.push({
      x: numbers(rows),
      y: costs(rows),
      mode: "markers",
      name: `size ${size}`,
      marker: { size: 9, color: sizes[size] || ink("--soft"), symbol },
      text: rows.map(text),
      hovertemplate: "%{text}<extra></extra>",
    });
  }
  plot(node, `Cost of ${count(known.length, "recurrence")} of ${job.job}`, traces, () =>
    layout(recurrenceAxis(most), { title: `cost, ${unit.name}`, rangemode: "tozero" }),
  );
  dataTable(
    node,
    [
      { name: "Recurrence", num: true, show: (r) => String(r.number) },
      { name: "Ended", show: (r) => pill(r.end) },
      { name: "Number of trials", num: true, show: (r) => String(r.tries) },
      { name: "Batch size", num: true, show: (r) => String(r.batch_size) },
      { name: "Epochs", num: true, show: (r) => number(r.epochs) },
      { name: "Cost", num: true, show: (r) => energy(r.cost) },
      { name: "Energy", num: true, show: (r) => energy(r.joules) },
      { name: "Time", num: true, show: (r) => duration(r.seconds) },
    ],
    job.history,
  );
}

// The default of each recurrence's own time; a service that does not tell it has one for all.
function energyCard(cards, job) {
  const dated = job.history.some((r) => !missing(r.default_joules));
  const node = card(
    cards,
    "Energy by recurrence",
    dated
      ? "Energy of all trials of a recurrence, compared with the default for the data of that time."
      : "Energy of all trials of a recurrence, compared with the default.",
    true,
  );
  const rows = job.history.filter((r) => !missing(r.joules)),
    most = Math.max(2, job.recurrences);
  const usual = (r) => (dated ? r.default_joules : job.default?.joules);
  const basis = (r) => ((dated ? r.default_basis : job.default?.basis) || "").replaceAll("_", " ");
  const unit = axisUnit([...rows.map((r) => r.joules), ...rows.map(usual)], ENERGY),
    x = rows.map((r) => r.number);
  const text = (r) => `recurrence ${r.number}: ${energy(r.joules)}, ${duration(r.seconds)}`;
  const usualText = (r) => `default: ${energy(usual(r))}${basis(r) ? ` (${plain(basis(r))})` : ""}`;
  const traces = [
    {
      x,
      y: within(
        rows.map((r) => r.joules),
        unit,
      ),
      mode: "lines+markers",
      name: "used",
      line: { color: ink("--accent"), width: 1.5 },
      text: rows.map(text),
      hovertemplate: "%{text}<extra></extra>",
    },
  ];
  if (rows.some((r) => !missing(usual(r))))
    traces.push({
      x,
      y: within(rows.map(usual), unit),
      mode: "lines",
      name: "default",
      text: rows.map(usualText),
      line: { color: ink("--soft"), dash: "dash", shape: "hvh" },
      hovertemplate: "%{text}<extra></extra>",
    });
  plot(node, `Energy of ${count(rows.length, "recurrence")} of ${job.job}`, traces, () =>
    layout(recurrenceAxis(most), { title: `energy, ${unit.name}`, rangemode: "tozero" }),
  );
  if (dated)
    dataTable(
      node,
      [
        { name: "Recurrence", num: true, show: (r) => String(r.number) },
        { name: "Energy", num: true, show: (r) => energy(r.joules) },
        { name: "Default energy", num: true, show: (r) => energy(r.default_joules) },
        { name: "Time", num: true, show: (r) => duration(r.seconds) },
        { name: "Default time", num: true, show: (r) => duration(r.default_seconds) },
        { name: "Basis of the default", show: basis },
      ],
      job.history,
    );
}

function beliefCard(cards, job, sizes) {
  const node = card(
    cards,
    "Belief about each batch size",
    "The mean cost of a run. The bar is one standard deviation of the belief about that mean.",
  );
  const known = job.sizes.filter((s) => !missing(s.mean)),
    unit = axisUnit(
      known.map((s) => s.mean),
      ENERGY,
    );
  const symbol = known.map((s) => (s.standing === "offered" ? "circle" : "x"));
  const text = (s) =>
    `batch size ${s.batch_size}: ${plain(s.standing)}, ${s.converged} of ${s.runs} runs reached ` +
    `the target<br>cost ${energy(s.mean)}`;
  plot(
    node,
    `Belief about the cost of each batch size of ${job.job}`,
    [
      {
        x: known.map((s) => String(s.batch_size)),
        y: within(
          known.map((s) => s.mean),
          unit,
        ),
        mode: "markers",
        error_y: {
          type: "data",
          array: within(
            known.map((s) => s.spread || 0),
            unit,
          ),
          color: ink("--soft"),
        },
        marker: { size: 11, color: known.map((s) => sizes[s.batch_size]), symbol },
        text: known.map(text),
        hovertemplate: "%{text}<extra></extra>",
      },
    ],
    () => layout(categories("batch size", job.spec.batch_sizes), { title: `cost, ${unit.name}`, rangemode: "tozero" }),
  );
  dataTable(
    node,
    [
      { name: "Batch size", num: true, show: (s) => String(s.batch_size) },
      { name: "Standing", show: (s) => s.standing },
      { name: "Reached", num: true, show: (s) => `${s.converged} of ${s.runs}` },
      { name: "Mean cost", num: true, show: (s) => energy(s.mean) },
      { name: "Spread", num: true, show: (s) => energy(s.spread) },
      { name: "Limit", num: true, show: (s) => watts(s.limit_watts) },
    ],
    job.sizes,
  );
}

function pathCard(cards, job) {
  const node = card(
    cards,
    "Path through batch sizes and power limits",
    "Each point is a recurrence, at the batch " +
      "size and limit it ended with. Later points are larger and stronger in colour.",
  );
  const best = new Map(job.sizes.map((s) => [s.batch_size, s.limit_watts]));
  const used = new Map(job.tries.map((t) => [t.recurrence, limitShares(t.limits)[0]?.watts])); // of its last try
  const limit = (r) => used.get(r.number) ?? best.get(r.batch_size);
  const rows = job.history.filter(limit),
    most = Math.max(2, job.recurrences);
  if (!rows.length) {
    remark(node, "No batch size has a power profile yet.");
    return;
  }
  const text = (r) => `recurrence ${r.number}: ${r.batch_size}, ${limit(r)} W, cost ${energy(r.cost)}`;
  const ticks = { title: { text: "recurrence" }, thickness: 10, tick0: 0, dtick: wholeStep(2 * most), tickformat: "d" };
  plot(
    node,
    `Batch sizes and power limits that ${job.job} has chosen`,
    [
      {
        x: rows.map((r) => String(r.batch_size)),
        y: rows.map(limit),
        mode: "lines+markers",
        line: { color: ink("--line"), width: 1 },
        marker: {
          size: rows.map((_r, i) => 8 + (6 * i) / rows.length),
          color: rows.map((r) => r.number),
          cmin: 1,
          cmax: most,
          colorscale: [
            [0, ink("--line")],
            [1, ink("--accent")],
          ],
          colorbar: ticks,
          line: { color: ink("--ink"), width: 0.6 },
        },
        text: rows.map(text),
        hovertemplate: "%{text}<extra></extra>",
      },
    ],
    () => layout(categories("batch size", job.spec.batch_sizes), limitAxis(rows.map(limit))),
  );
}

// The service computes the cost of a step (Equation 2); without it there is no curve.
function profileCard(cards, job, profiles, sizes) {
  const node = card(
    cards,
    "Power profile of each batch size",
    "Cost of a training step at each power limit, divided by the lowest. The ring marks the chosen limit.",
  );
  if (!profiles.length) {
    remark(node, "Nothing has been profiled yet.");
    return;
  }
  const sameGpu = profiles.every((p) => p.key.gpu_model === profiles[0].key.gpu_model);
  const traces = [],
    rows = [];
  for (const one of profiles) {
    const size = one.key.batch_size;
    const costs = new Map(Object.entries(one.costs || {}).map(([limit, cost]) => [Number(limit), cost]));
    const steps = one.profile.measurements
      .map((m) => ({
        size,
        gpu: one.key.gpu_model,
        limit: m.power_limit,
        cost: costs.get(m.power_limit),
        joules: m.energy / (m.steps || 1),
        seconds: m.time / (m.steps || 1),
        chosen: m.power_limit === one.best_limit,
      }))
      .sort((a, b) => a.limit - b.limit);
    rows.push(...steps);
    const known = steps.filter((s) => !missing(s.cost)),
      least = Math.min(...known.map((s) => s.cost));
    const text = (s) => `${size} at ${s.limit} W: ${energy(s.joules)} and ${digits(1000 * s.seconds)} ms per step`;
    if (known.length)
      traces.push({
        x: known.map((s) => s.limit),
        y: known.map((s) => s.cost / least),
        mode: "lines+markers",
        name: sameGpu ? `${size}` : `${size}, ${plain(one.key.gpu_model)}`,
        line: { color: sizes[size] },
        marker: {
          size: known.map((s) => (s.chosen ? 13 : 5)),
          symbol: known.map((s) => (s.chosen ? "circle-open-dot" : "circle")),
        },
        text: known.map(text),
        hovertemplate: "%{text}<br>%{y:.3f} of the best<extra></extra>",
      });
  }
  if (traces.length) {
    plot(node, `Power profiles of ${job.job}`, traces, () => ({
      ...layout({ title: "power limit, watts" }, { title: "cost of a step / lowest" }),
      showlegend: true,
    }));
  } else remark(node, "The cost of a step is not known for these profiles.");
  dataTable(
    node,
    [
      { name: "Batch size", num: true, show: (s) => String(s.size) },
      { name: "GPU", show: (s) => s.gpu },
      { name: "Limit", num: true, show: (s) => watts(s.limit) },
      { name: "Energy per step", num: true, show: (s) => energy(s.joules) },
      { name: "Time per step", num: true, show: (s) => `${digits(1000 * s.seconds)} ms` },
      { name: "Cost per step", num: true, show: (s) => energy(s.cost) },
      { name: "", show: (s) => (s.chosen ? "chosen" : "") },
    ],
    rows,
  );
}

function frontCard(cards, job, sizes) {
  const node = card(
    cards,
    "Time against energy",
    "What a run would take at each batch size and power limit: expected " +
      "epochs times a profiled epoch. The line is the Pareto front. The star is the default.",
  );
  const rows = job.points || [];
  if (!rows.length) {
    remark(node, "Not enough is known yet. One batch size must be profiled and must have reached the target.");
    return;
  }
  const time = axisUnit(
      rows.map((r) => r.seconds),
      TIME,
    ),
    unit = axisUnit(
      rows.map((r) => r.joules),
      ENERGY,
    );
  const x = (some) =>
      within(
        some.map((r) => r.seconds),
        time,
      ),
    y = (some) =>
      within(
        some.map((r) => r.joules),
        unit,
      );
  const text = (r) => `${r.batch_size} at ${r.limit_watts} W<br>${duration(r.seconds)}, ${energy(r.joules)}`;
  const traces = [];
  for (const size of new Set(rows.map((r) => r.batch_size))) {
    const some = rows.filter((r) => r.batch_size === size);
    traces.push({
      x: x(some),
      y: y(some),
      mode: "markers",
      name: `${size}`,
      text: some.map(text),
      marker: { color: sizes[size], size: 8, opacity: 0.85 },
      hovertemplate: "%{text}<extra></extra>",
    });
  }
  const front = rows.filter((r) => r.on_front).sort((a, b) => a.seconds - b.seconds);
  const usual = rows.filter((r) => r.is_default);
  traces.push(
    {
      x: x(front),
      y: y(front),
      mode: "lines",
      name: "front",
      line: { color: ink("--ink"), width: 1.2 },
      hoverinfo: "skip",
    },
    {
      x: x(usual),
      y: y(usual),
      mode: "markers",
      name: "default",
      text: usual.map(text),
      marker: { symbol: "star", size: 16, color: ink("--bad"), line: { color: ink("--card"), width: 1 } },
      hovertemplate: "default: %{text}<extra></extra>",
    },
  );
  plot(node, `Time and energy of ${job.job} by batch size and power limit`, traces, () =>
    layout({ title: `time to the target, ${time.name}` }, { title: `energy to the target, ${unit.name}` }),
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

// ---------------------------------------------------------------- trials of a job

function whereText(trial) {
  const model = trial.gpu_model || "",
    prefix = `${trial.gpus} x `;
  return trial.gpus > 1 && !model.startsWith(prefix) ? prefix + model : model;
}

// The limits that a trial ran at, and its share at each, the largest first.
function limitShares(limits) {
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

const TRIAL_COLUMNS = [
  {
    name: "Trial",
    num: true,
    show: (t) =>
      twoLines(String(t.number), `recurrence ${t.recurrence}`, t.attempt > 1 ? `attempt ${t.attempt}` : null),
  },
  { name: "Batch size", num: true, show: (t) => String(t.batch_size) },
  { name: "Ended", show: (t) => pill(t.ending) },
  { name: "Epochs", num: true, show: (t) => number(t.epochs) },
  { name: "Metric", num: true, show: (t) => metricText(t.metric) },
  { name: "Energy", num: true, show: (t) => energy(t.joules) },
  { name: "Time", num: true, show: (t) => (missing(t.seconds) ? "" : duration(t.seconds)) },
  {
    name: "Cost",
    num: true,
    show: (t) =>
      twoLines(
        energy(t.cost),
        missing(t.cost_limit) ? "no cost limit" : `cost limit ${energy(t.cost_limit)}`,
        t.overshoot > 0 ? `${energy(t.overshoot)} over it` : null,
      ),
  },
  { name: "Where", class: "reason", show: (t) => twoLines(whereText(t), limitsText(t.limits)) },
  {
    name: "Why",
    class: "reason",
    show: (t) => twoLines(t.reason, `asked ${when(t.asked_at)}${missing(t.eta) ? "" : `, η ${t.eta}`}`),
  },
];

function trialCard(cards, job) {
  const node = card(cards, "Trials", null, true),
    body = el("div", {}),
    log = el("div", { "aria-live": "polite" });
  const filter = { ending: "", size: "", text: "" };
  let offset = 0;
  const set = (name, value) => {
    filter[name] = value;
    offset = 0;
    fill();
  };
  const pick = (name, label, values, show) =>
    el(
      "label",
      {},
      label,
      el(
        "select",
        { on: { change: (event) => set(name, event.target.value) } },
        el("option", { value: "" }, "all"),
        values.map((v) => el("option", { value: v }, show(v))),
      ),
    );
  const typed = (event) => set("text", event.target.value.toLowerCase());
  const text = el("input", { type: "search", placeholder: "in the reason", on: { input: typed } });
  const endings = [...new Set(job.tries.map((t) => t.ending))];
  const sizes = [...new Set(job.tries.map((t) => t.batch_size))].sort((a, b) => a - b);
  node.append(
    el(
      "div",
      { class: "bar" },
      pick("ending", "Ended", endings, (v) => ENDINGS[v] || v),
      pick("size", "Batch size", sizes, String),
      el("label", {}, "Search", text),
    ),
    body,
    log,
  );
  const open = async (trial) => {
    const title = `Log of trial ${trial.number}`;
    try {
      const found = (await ask(`${pathOf(job.job)}/trials/${trial.number}/log`)).log;
      log.replaceChildren(el("h2", {}, title), el("pre", { class: "log", tabindex: "0" }, found));
    } catch (wrong) {
      log.replaceChildren(el("p", { class: "note" }, `${title}: ${wrong.message}`));
    }
    log.scrollIntoView({ block: "nearest" });
  };
  const logButton = (t) =>
    el("button", { type: "button", "aria-label": `log of trial ${t.number}`, on: { click: () => open(t) } }, "Log");
  const columns = EMBEDDED ? TRIAL_COLUMNS : [...TRIAL_COLUMNS, { name: "Log", show: logButton }];
  const wanted = (t) =>
    (!filter.ending || t.ending === filter.ending) &&
    (!filter.size || String(t.batch_size) === filter.size) &&
    (!filter.text || t.reason.toLowerCase().includes(filter.text));
  function fill() {
    const rows = [...job.tries].reverse().filter(wanted),
      last = Math.min(rows.length, offset + TRIALS);
    const title = `${rows.length} of ${count(job.tries.length, "trial")}, the latest first`;
    body.replaceChildren(table(title, columns, rows.slice(offset, last), true));
    if (rows.length <= TRIALS) return;
    const turn = (name, to, disabled) =>
      el(
        "button",
        {
          type: "button",
          disabled,
          on: {
            click: () => {
              offset = to;
              fill();
            },
          },
        },
        name,
      );
    body.append(
      el(
        "div",
        { class: "pages" },
        turn("Later", Math.max(0, offset - TRIALS), offset === 0),
        `${offset + 1} to ${last}`,
        turn("Earlier", offset + TRIALS, last >= rows.length),
      ),
    );
  }
  fill();
}

// ---------------------------------------------------------------- jobs side by side

async function showCompare(query) {
  const jobs = await Promise.all(query.getAll("job").map((id) => ask(pathOf(id))));
  return () => {
    crumbs([["Compare", null]]);
    clear();
    main.append(
      el("h1", {}, `${jobs.length} jobs side by side`),
      el("p", { class: "lead" }, "Cost of each recurrence, divided by the cost of the job's own default."),
    );
    const cards = el("div", { class: "cards" });
    main.append(cards);
    const node = card(cards, "Cost by recurrence, relative to the default", null, true);
    const most = Math.max(2, ...jobs.map((job) => job.recurrences || 0));
    plot(node, `Relative cost of ${count(jobs.length, "job")}`, jobs.map(relativeCost), () =>
      layout(recurrenceAxis(most), { title: "cost / default", rangemode: "tozero" }),
    );
    main.append(el("h2", {}, " "), compareTable(jobs));
    redraw();
  };
}

function relativeCost(job, i) {
  const rows = job.history.filter((r) => !missing(r.cost));
  const base = job.default ? job.default.cost : rows.length ? rows[0].cost : 1;
  return {
    x: rows.map((r) => r.number),
    y: rows.map((r) => r.cost / base),
    mode: "lines+markers",
    name: plain(job.job) + (job.default ? "" : " (relative to its first)"),
    line: { color: COLOURS[i % COLOURS.length] },
    hovertemplate: "%{y:.3f}<extra>%{fullData.name}</extra>",
  };
}

function compareTable(jobs) {
  const size = (j) => {
    const sizes = runningTrials(j).map((t) => t.batch_size);
    return sizes.length ? `${sizes.join(", ")} (running)` : missing(j.batch_size) ? "none" : `${j.batch_size} (next)`;
  };
  const columns = [{ name: "", class: "name", show: (row) => row[0] }];
  for (const job of jobs) columns.push({ name: job.job, show: (row) => row[1](job) });
  return table("Results so far", columns, [
    ["Phase", (j) => j.phase],
    ["Policy", (j) => j.policy],
    ["GPU", (j) => j.gpu_model || ""],
    ["Recurrences", (j) => String(j.recurrences)],
    ["Batch size", size],
    ["Default batch size", (j) => String(j.spec.default_batch_size)],
    ["The default uses", (j) => defaultText(j)],
    ["Saved so far", (j) => savingText(j.saving)],
    ["Latest recurrences", (j) => savingText(j.recent_saving)],
    ["Energy used", (j) => energy(j.joules)],
    ["η, β, window", (j) => `${j.spec.eta_knob}, ${j.spec.beta_knob ?? "none"}, ${j.spec.window_size || "none"}`],
  ]);
}

// ---------------------------------------------------------------- log in and out

function showLogin() {
  crumbs([]);
  clear();
  logoutButton.hidden = true;
  const token = el("input", { type: "password", id: "token", autocomplete: "current-password", required: true });
  const problem = el("p", { class: "bad", role: "alert" });
  const submit = async (event) => {
    event.preventDefault();
    const answer = await fetch("login", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      credentials: "same-origin",
      body: JSON.stringify({ token: token.value.trim() }),
    });
    if (!answer.ok) {
      problem.textContent = (await answer.json()).error?.message || "the token was not accepted";
      return;
    }
    showLogout();
    go(true);
  };
  main.append(
    el(
      "form",
      { class: "card login", on: { submit } },
      el("h1", {}, "Zeus"),
      el("label", { for: "token" }, "Token (see zeus token create)"),
      token,
      el("button", { class: "main", type: "submit" }, "Log in"),
      problem,
    ),
  );
  token.focus();
}

// No script can read the cookie, so the service is asked whose it is. Without one, an open service says "anybody".
async function showLogout() {
  try {
    const { name } = await ask("api/v1/me");
    logoutButton.hidden = missing(name) || name === "anybody";
  } catch {
    /* the page itself says that the service does not answer */
  }
}

async function logout() {
  await fetch("logout", { method: "POST", credentials: "same-origin" });
  logoutButton.hidden = true;
  go(true);
}

// ---------------------------------------------------------------- moving about

function crumbs(parts) {
  const list = document.getElementById("crumbs");
  list.replaceChildren(
    el("li", {}, el("a", { href: "#/" }, "Jobs")),
    ...parts.map(([name]) => el("li", { "aria-current": "page" }, name)),
  );
  document.title = parts.length ? `${parts[parts.length - 1][0]} · Zeus` : "Zeus";
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
function addressOf(hash) {
  const [path, query] = hash.replace(/^#/, "").split("?"),
    parts = path.split("/").map(decoded);
  return { kind: parts[1], job: parts.slice(2).join("/"), search: new URLSearchParams(query || "") };
}
function pageOf(hash) {
  const { kind, job, search } = addressOf(hash);
  if (kind === "job") return showJob(job);
  return kind === "compare" ? showCompare(search) : showList(search);
}

let visits = 0;
async function go(focus) {
  const visit = ++visits;
  try {
    const before = await pulse(); // first, so that what changes while the page is fetched is seen at the next beat
    const show = await pageOf(location.hash);
    if (visit !== visits) return; // the user has gone elsewhere meanwhile
    show();
    last = before;
    if (focus) {
      main.focus({ preventScroll: true });
      window.scrollTo(0, 0);
    }
    setLive(!EMBEDDED ? "live" : EMBEDDED.at ? `as of ${when(EMBEDDED.at)}` : "");
  } catch (wrong) {
    if (visit !== visits) return;
    if (wrong instanceof NeedsToken) {
      showLogin();
      return;
    }
    clear();
    crumbs([]);
    main.append(
      el(
        "div",
        { class: "card empty", role: "alert" },
        el("p", { class: "bad" }, wrong.message),
        el("p", {}, el("a", { href: "#/" }, "All jobs")),
      ),
    );
  }
}
function setLive(text) {
  document.getElementById("live").textContent = text;
}

let last = null,
  beats = 0;
const BEAT = 3000,
  RUNNING_BEATS = 2; // milliseconds; beats between two looks at running trials
// Of the jobs that are shown alone: a store may hold very many.
async function pulse() {
  const { kind, job, search } = addressOf(location.hash);
  const shown = kind === "job" ? [job] : kind === "compare" ? search.getAll("job") : [];
  const query = shown.length ? shown.map((id) => `job=${encodeURIComponent(id)}`).join("&") : listQuery(search);
  return JSON.stringify(await ask(`api/v1/pulse?${query}`));
}
async function beat() {
  try {
    const now = await pulse(),
      active = document.activeElement;
    const busy = main.contains(active) && ["INPUT", "SELECT"].includes(active.tagName);
    if (last !== null && now !== last && !busy && !main.querySelector("pre.log")) {
      const y = window.scrollY;
      await go(false);
      window.scrollTo(0, y);
    } else if (running && ++beats % RUNNING_BEATS === 0) await refreshRunning();
    setLive("live");
  } catch (wrong) {
    setLive(wrong instanceof NeedsToken ? "" : "the service does not answer");
  }
}

const themeButton = document.getElementById("theme");
function theme(name) {
  document.documentElement.dataset.theme = name;
  themeButton.textContent = name === "dark" ? "Light" : "Dark";
  try {
    localStorage.setItem("zeus-theme", name);
  } catch {
    /* a page in a file may keep nothing */
  }
}
let kept = null;
try {
  kept = localStorage.getItem("zeus-theme");
} catch {
  /* as above */
}
theme(kept || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"));
themeButton.addEventListener("click", () => {
  theme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
  go(false);
});
logoutButton.addEventListener("click", logout);
window.addEventListener("hashchange", () => go(true));
if (!EMBEDDED) {
  setInterval(() => {
    if (!document.hidden) beat();
  }, BEAT);
  showLogout();
}
go(false);
