// The list of jobs.
import { ask } from "./api.js";
import { clear } from "./charts.js";
import { crumbs, el, main, missing, savingTiles, spark, table, tile, twoLines } from "./dom.js";
import { count, energy, number, savingText, tint, usedWorth, worthText } from "./format.js";

const chosen = new Set();
const LIMIT = 50;

export function listQuery(query) {
  return `offset=${Number(query.get("offset") || 0)}&limit=${LIMIT}&q=${encodeURIComponent(query.get("q") || "")}`;
}
export async function showList(query) {
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
