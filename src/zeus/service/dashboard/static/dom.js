// Building blocks of the page. Everything is made with textContent, so that what users typed is shown as text.
import { ENDINGS, ENDING_CLASSES, direction, energy, mass, money, savingText, tint } from "./format.js";

export const main = document.getElementById("main");
export function el(tag, props, ...children) {
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
export function missing(value) {
  return value === null || value === undefined;
}
export function crumbs(parts) {
  const list = document.getElementById("crumbs");
  list.replaceChildren(
    el("li", {}, el("a", { href: "#/" }, "Jobs")),
    ...parts.map(([name]) => el("li", { "aria-current": "page" }, name)),
  );
  document.title = parts.length ? `${parts[parts.length - 1][0]} · Zeus` : "Zeus";
}

export function card(cards, title, note, wide) {
  const node = el("section", { class: wide ? "card wide" : "card" }, el("h2", {}, title));
  if (note) node.append(el("p", { class: "note" }, note));
  cards.append(node);
  return node;
}
export function remark(node, text) {
  node.append(el("p", { class: "note" }, text));
}
export function dataTable(node, columns, rows) {
  node.append(el("details", { class: "data" }, el("summary", {}, "As a table"), table(null, columns, rows)));
}

export function pill(ending) {
  return el("span", { class: `pill ${ENDING_CLASSES[ending] || ""}` }, ENDINGS[ending] || ending);
}

export function tile(name, value, small, kind, wide) {
  const notes = [small]
    .flat()
    .filter(Boolean)
    .map((line) => el("small", {}, line));
  return el("div", { class: wide ? "tile wide" : "tile" }, el("dt", {}, name), el("dd", { class: kind }, value, notes));
}

// The tiles of a saving: energy in words, then money and CO₂e where they have a price.
export function savingTiles(name, saving, notes) {
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

export function table(caption, columns, rows, stack) {
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

export function twoLines(first, ...more) {
  return [first, ...more.filter(Boolean).map((line) => el("small", {}, line))];
}

export function spark(costs) {
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
