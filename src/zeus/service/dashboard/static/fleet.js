// What all jobs used and saved, for who pays: by week, owner and GPU, and the jobs that need someone.
import { ask, linkOf, optional } from "./api.js";
import { axisUnit, clear, clearCard, ink, layout, plain, plot, redraw, within } from "./charts.js";
import { card, choice, dataTable, el, fillCard, main, missing, table, tile, timeOf, titled } from "./dom.js";
import { EMBEDDED } from "./embedded.js";
import { ENERGY, MASS, bound, count, energy, mass, money, number, when, withError } from "./format.js";

export const fleetView = { show: showFleet, pulse: fleetPulse };
const FRESH = 60_000; // milliseconds; it is a sum over all jobs, so no stamp tells when it changes

let waits = 0; // jobs that are not counted yet, or not as they are now
async function fleetPulse() {
  if (!EMBEDDED) await ask("api/v1/pulse?limit=1"); // whether the service answers
  return String(waits ? Date.now() : Math.floor(Date.now() / FRESH));
}

async function showFleet() {
  const fleet = await optional("api/v1/fleet?weeks=12");
  waits = (fleet?.uncounted || 0) + (fleet?.outdated || 0);
  return () => {
    titled("Fleet");
    clear();
    if (!fleet) {
      main.append(el("h1", {}, "Fleet"), el("p", { class: "lead" }, "This service is older, and does not tell it."));
      return;
    }
    const cards = el("div", { class: "cards" });
    main.append(
      el("h1", {}, "Fleet"),
      el("p", { class: "lead" }, fleet.sentence ?? "", fleet.as_of ? ` As of ${when(fleet.as_of)}.` : ""),
      fleetTiles(fleet),
      cards,
    );
    weekCard(cards, fleet);
    partCard(cards, "By owner", { name: "Owner", class: "name", show: (r) => ownerLink(r.owner) }, fleet.owners, fleet);
    partCard(cards, "By GPU", { name: "GPU", class: "name", show: (r) => r.gpu_model || "unknown" }, fleet.gpus, fleet);
    needCard(cards, "Jobs that lose", "They used more than their default would have.", fleet.losing, "losing");
    needCard(
      cards,
      "Jobs that fail",
      "Their last recurrence failed, or their last trials did.",
      fleet.failing,
      "failing",
    );
    needCard(cards, "Jobs that did not run", "None of their trials ended in these weeks.", fleet.idle);
    redraw();
  };
}

const ownerLink = (owner) =>
  owner ? el("a", { href: `#/?owner=${encodeURIComponent(owner)}` }, owner) : "without an owner";

const amount = (value, currency, error) =>
  missing(value) ? "unknown" : `${value < 0 ? "-" : ""}${money(Math.abs(value), currency, error)}`;
const grams = (value, error) => withError(value, error, MASS);

function fleetTiles({ totals, currency }) {
  if (!totals) return "";
  const worth = (name, show) => {
    const [used, saved, error] = [totals[name], totals[`saved_${name}`], totals[`saved_${name}_error`]];
    return missing(used) && missing(saved) ? null : [show(used), show(saved, error)];
  };
  const euros = worth("money", (value, error) => amount(value, currency, error)),
    carbon = worth("gco2e", grams);
  return el(
    "dl",
    { class: "tiles" },
    tile("Energy used", energy(totals.joules), totals.recurrences ? count(totals.recurrences, "recurrence") : null),
    tile("Energy saved", withError(totals.saved_joules, totals.saved_joules_error, ENERGY)),
    euros ? tile("Money", euros[0], `saved: ${euros[1]}`) : null,
    carbon ? tile("CO₂e", carbon[0], `saved: ${carbon[1]}`) : null,
    missing(totals.failed) ? null : tile("Failed recurrences", String(totals.failed)),
  );
}

const MEASURES = {
  energy: { used: "joules", saved: "saved_joules", error: "saved_joules_error", units: () => ENERGY, show: energy },
  money: {
    used: "money",
    saved: "saved_money",
    error: "saved_money_error",
    units: (fleet) => [{ name: fleet.currency || "money", factor: 1, from: 0 }],
    show: (value, fleet) => amount(value, fleet.currency),
  },
  carbon: { used: "gco2e", saved: "saved_gco2e", error: "saved_gco2e_error", units: () => MASS, show: mass },
};
const MEASURE_NAMES = { energy: "energy", money: "money", carbon: "CO₂e" };
let measured = "energy"; // what a person has chosen

function weekCard(cards, fleet) {
  const node = card(cards, "", null, true),
    weeks = fleet.weeks || [];
  const known = Object.keys(MEASURES).filter((name) => weeks.some((w) => !missing(w[MEASURES[name].used])));
  const draw = () => {
    clearCard(node);
    fillCard(node, "By week", "Used, and saved against the default. The line on a bar is one standard error.");
    if (!known.length) {
      node.append(el("p", { class: "note" }, "Nothing has run in these weeks."));
      return;
    }
    const pick = (name) => {
      measured = name;
      draw();
      redraw();
    };
    const name = known.includes(measured) ? measured : known[0],
      options = known.map((one) => [one, MEASURE_NAMES[one]]);
    if (known.length > 1) node.querySelector(".head").append(choice("Measure", options, name, pick));
    weekChart(node, fleet, weeks, MEASURES[name], MEASURE_NAMES[name]);
    dataTable(node, [{ name: "Week", show: (w) => w.week }, ...sumColumns(fleet)], weeks.toReversed());
  };
  draw();
}

function weekChart(node, fleet, weeks, measure, name) {
  const unit = axisUnit(
    weeks.map((w) => w[measure.used]),
    measure.units(fleet),
  );
  const bars = (field, label, color, error) => ({
    x: weeks.map((w) => plain(w.week)),
    y: within(
      weeks.map((w) => w[field]),
      unit,
    ),
    type: "bar",
    name: label,
    marker: { color },
    text: weeks.map((w) => `${w.week}: ${label} ${missing(w[field]) ? "unknown" : measure.show(w[field], fleet)}`),
    textposition: "none",
    hovertemplate: "%{text}<extra></extra>",
    error_y: error && {
      type: "data",
      array: within(
        weeks.map((w) => w[error] ?? 0),
        unit,
      ),
      color: ink("--ink"),
      thickness: 1.5,
    },
  });
  const traces = [
    bars(measure.used, "used", ink("--bar"), null),
    bars(measure.saved, "saved", ink("--good"), measure.error),
  ];
  plot(node, `${name} used and saved by week`, traces, () => ({
    ...layout({ title: "week", type: "category" }, { title: `${name}, ${unit.name}` }),
    barmode: "group",
  }));
}

// Money and CO₂e are shown where a price or an intensity is known.
function sumColumns(fleet) {
  const all = [...(fleet.weeks || []), ...(fleet.owners || []), ...(fleet.gpus || [])];
  const has = (field) => all.some((r) => !missing(r[field]));
  const saved = (r) => withError(r.saved_joules, r.saved_joules_error, ENERGY),
    savedMoney = (r) => amount(r.saved_money, fleet.currency, r.saved_money_error);
  return [
    { name: "Used", num: true, show: (r) => energy(r.joules) },
    { name: "Saved", num: true, show: saved },
    ...(has("money") ? [{ name: "Money", num: true, show: (r) => amount(r.money, fleet.currency) }] : []),
    ...(has("saved_money") ? [{ name: "Saved money", num: true, show: savedMoney }] : []),
    ...(has("gco2e") ? [{ name: "CO₂e", num: true, show: (r) => grams(r.gco2e) }] : []),
    ...(has("saved_gco2e")
      ? [{ name: "Saved CO₂e", num: true, show: (r) => grams(r.saved_gco2e, r.saved_gco2e_error) }]
      : []),
    { name: "Recurrences", num: true, show: (r) => number(r.recurrences) },
    { name: "Failed", num: true, show: (r) => el("span", { class: r.failed ? "bad" : "" }, number(r.failed)) },
  ];
}

function partCard(cards, title, first, rows, fleet) {
  const node = card(cards, title, null, true);
  node.append(table(null, [first, ...sumColumns(fleet)], rows || [], true));
}

function needCard(cards, title, note, rows, state) {
  const node = card(cards, title, note);
  if (!rows?.length) {
    node.append(el("p", { class: "good" }, "None."));
    return;
  }
  const item = (row) => {
    const job = row.job ?? row;
    const parts = [row.owner, row.last_run_at ? ["last run ", timeOf(row.last_run_at)] : null].filter(Boolean);
    const facts = parts.map((one) => el("small", {}, one));
    return el(
      "li",
      {},
      el("a", { href: linkOf(job) }, job),
      facts,
      row.sentence ? el("p", {}, bound(row.sentence)) : null,
    );
  };
  node.append(el("ul", { class: "need" }, rows.map(item)));
  if (state) node.append(el("p", {}, el("a", { href: `#/?state=${state}` }, `All ${state} jobs in the list`)));
}
