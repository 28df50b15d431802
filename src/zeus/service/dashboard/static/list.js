// The list of jobs: sorted, filtered and paged by the service. Its address says how, so that a link shows the same.
import { ask, linkOf } from "./api.js";
import { clear } from "./charts.js";
import { el, keepFocus, main, missing, replaceAddress, savingTiles, tile, titled } from "./dom.js";
import { count, energy, usedWorth } from "./format.js";
import { jobTable, phaseOf } from "./list_table.js";

export const listView = { show: showList, pulse: listPulse, follow: followList };
const LIMIT = 50,
  TYPING = 200; // milliseconds between the last letter and the search
const FIELDS = ["q", "owner", "gpu", "state", "sort", "desc", "offset"];

function listQuery(search) {
  const query = new URLSearchParams({ offset: "0", limit: String(LIMIT), q: "" });
  for (const name of FIELDS) if (search.get(name)) query.set(name, search.get(name));
  return query.toString();
}
function listAddress(search, changes) {
  const query = new URLSearchParams();
  for (const name of FIELDS) {
    const value = name in changes ? changes[name] : name === "offset" ? null : search.get(name);
    if (value) query.set(name, value);
  }
  return `#/${query.size ? `?${query}` : ""}`;
}

// A stamp of each job that is shown. Which jobs a filter or an order shows is told by the list alone, asked less often.
const SELECTS = ["owner", "gpu", "state", "sort", "desc"],
  FRESH_LIST = 15_000; // milliseconds
async function listPulse({ search }) {
  if (!SELECTS.some((name) => search.get(name))) return JSON.stringify(await ask(`api/v1/pulse?${listQuery(search)}`));
  const names = frame?.form.isConnected ? frame.page.jobs.map((row) => `job=${encodeURIComponent(row.job)}`) : [];
  const stamps = names.length ? await ask(`api/v1/pulse?${names.join("&")}`) : {};
  const since = names.length && frame.page.uncounted ? Date.now() : Math.floor(Date.now() / FRESH_LIST);
  return JSON.stringify([stamps, since]);
}

let frame = null; // what stays while its rows change: the form, in which someone may be typing
async function showList({ search }) {
  const [page, summary] = await Promise.all([ask(`api/v1/jobs?${listQuery(search)}`), ask("api/v1/summary")]);
  return () => {
    titled("");
    if (!frame?.form.isConnected) frame = newFrame();
    frame.tiles.replaceChildren(...summaryTiles(summary));
    frame.search = search;
    frame.page = page;
    fillForm(page);
    fillRows(summary.jobs);
  };
}
async function followList() {
  if (!frame?.form.isConnected || !frame.page.jobs.some((row) => row.running?.length)) return;
  const { search } = frame,
    page = await ask(`api/v1/jobs?${listQuery(search)}`);
  if (!frame.form.isConnected || search !== frame.search) return;
  frame.page = page;
  keepFocus(() => fillRows(page.total), true);
}

function newFrame() {
  const tiles = el("dl", { class: "tiles" }),
    fields = el("div", { class: "fields" }),
    rows = el("div", {});
  const q = el("input", { type: "search", id: "q", placeholder: "part of a name", autocomplete: "off" });
  const form = el(
    "form",
    { class: "bar", role: "search", on: { submit: (event) => event.preventDefault() } },
    el("label", { for: "q" }, "Find", q),
    fields,
  );
  let timer = null,
    typing = false; // the first letter makes an entry in the browser's history, the others change it
  q.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      const to = listAddress(frame.search, { q: q.value });
      if (typing) replaceAddress(to);
      else location.hash = to;
      typing = true;
    }, TYPING);
  });
  q.addEventListener("blur", () => {
    typing = false;
  });
  clear();
  main.append(
    el("h1", {}, "Recurring jobs"),
    el(
      "p",
      { class: "lead" },
      "Zeus learns from each recurrence which batch size and power limit cost least. " +
        "Savings are relative to the default batch size at the highest power limit.",
    ),
    tiles,
    form,
    rows,
  );
  return { tiles, form, fields, q, rows };
}

const STATES = ["running", "failing", "losing", "ok", "new"];
const SORTS = {
  name: "name",
  owner: "owner",
  state: "state",
  gpu: "GPU",
  last: "last run",
  failures: "failures",
  trials: "trials",
  joules: "energy",
  saving: "saving",
};
function fillForm(page) {
  const { search, q, fields } = frame;
  if (document.activeElement !== q) q.value = search.get("q") || "";
  const pick = (name, label, values, shown = {}, all = "all") => {
    const held = search.get(name) || "",
      some = held && !values.includes(held) ? [held, ...values] : values;
    const change = (event) => {
      location.hash = listAddress(frame.search, { [name]: event.target.value });
    };
    const options = some.map((v) => el("option", { value: v, selected: v === held }, shown[v] || v));
    const first = all ? el("option", { value: "" }, all) : null;
    return el("label", {}, label, el("select", { id: `list-${name}`, on: { change } }, first, options));
  };
  const turned = search.get("desc") === "true";
  const turn = el("a", { class: "narrow", href: listAddress(search, { desc: turned ? "" : "true" }) });
  turn.textContent = turned ? "ascending" : "descending";
  if (!page.owners) return; // an older service filters and sorts nothing
  const owners = page.owners.filter(Boolean), // jobs of nobody are not asked for
    shows = (name, values) => values.length || search.get(name);
  const sort = pick("sort", "Sort by", Object.keys(SORTS), SORTS, null);
  sort.className = "narrow";
  fields.replaceChildren(
    ...(shows("owner", owners) ? [pick("owner", "Owner", owners)] : []),
    ...(shows("gpu", page.gpus) ? [pick("gpu", "GPU", page.gpus)] : []),
    pick("state", "State", STATES),
    sort,
    turn,
  );
}

function fillRows(known) {
  const { search, page, rows } = frame;
  if (!known) {
    rows.replaceChildren(
      el(
        "div",
        { class: "card empty" },
        el("p", {}, "No job has been registered yet."),
        el("p", {}, "Run one: ", el("code", {}, "zeus run job.toml")),
      ),
    );
    return;
  }
  const by = search.get("sort") || "name",
    desc = search.get("desc") === "true";
  const href = (key) => listAddress(search, { sort: key, desc: key === by && !desc ? "true" : "" });
  const sorting = page.owners ? { by, desc, href } : null;
  const offset = Number(search.get("offset") || 0);
  rows.replaceChildren(jobTable(page, offset, sorting), ...listRemarks(page), listPages(page.total, offset, search));
}

function listRemarks(page) {
  const remarks = page.jobs.filter((row) => row.remark).map((row) => el("p", { class: "remark" }, remarkOf(row)));
  if (page.uncounted) remarks.push(el("p", { class: "remark" }, `${count(page.uncounted, "job")} not read yet`));
  const phases = new Map(page.jobs.filter((row) => row.phase_text).map((row) => [phaseOf(row), row.phase_text]));
  if (!phases.size) return remarks;
  const rows = [...phases].map(([phase, text]) => el("div", {}, el("dt", {}, phase), el("dd", {}, text)));
  return [
    ...remarks,
    el("details", { class: "legend" }, el("summary", {}, "What the phases mean"), el("dl", {}, rows)),
  ];
}
const remarkOf = (row) => [el("a", { href: linkOf(row.job) }, row.job), `: ${row.remark}`];

function summaryTiles(summary) {
  const saving = missing(summary.saved_joules)
    ? null
    : {
        joules: summary.saved_joules,
        joules_error: summary.saved_joules_error,
        sentence: summary.saved_sentence,
        money: summary.money,
        money_error: summary.money_error,
        gco2e: summary.gco2e,
        gco2e_error: summary.gco2e_error,
        currency: summary.currency,
      };
  const notes = [];
  if (summary.uncounted) notes.push(`${count(summary.uncounted, "job")} not read yet`);
  if (summary.outdated) notes.push(`${count(summary.outdated, "job")} not up to date yet`);
  const known = summary.jobs_with_saving;
  if (!missing(known) && known < summary.jobs) notes.push(`known for ${known} of ${count(summary.jobs, "job")}`);
  return [
    tile("Jobs", String(summary.jobs)),
    tile("Recurrences", String(summary.recurrences), count(summary.trials, "trial")),
    tile("Energy used", energy(summary.joules), usedWorth(summary.footprint)),
    ...savingTiles("Saved energy", saving, notes.join("; ")),
  ];
}

function listPages(total, offset, search) {
  if (total <= LIMIT && !offset) return "";
  const link = (to, text) => el("a", { href: listAddress(search, { offset: to }) }, text);
  return el(
    "nav",
    { class: "pages", "aria-label": "Pages" },
    offset > 0 ? link(Math.max(0, offset - LIMIT), "Earlier") : null,
    `${Math.min(total, offset + 1)} to ${Math.min(total, offset + LIMIT)} of ${total}`,
    offset + LIMIT < total ? link(offset + LIMIT, "Later") : null,
  );
}
