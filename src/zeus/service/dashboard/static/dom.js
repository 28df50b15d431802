// Building blocks of the page. Everything is made with textContent, so that what users typed is shown as text.
import { EMBEDDED } from "./embedded.js";
import {
  ENDINGS,
  ENDING_CLASSES,
  MASS,
  ago,
  direction,
  energy,
  money,
  savingText,
  tint,
  when,
  withError,
} from "./format.js";

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
export function titled(name) {
  document.title = name ? `${name} · Zeus` : "Zeus";
}
export function reload() {
  window.dispatchEvent(new HashChangeEvent("hashchange"));
}
// To another address of the same page, in place of the present one in the browser's history.
export function replaceAddress(hash) {
  history.replaceState(null, "", hash);
  reload();
}

// Draw anew what is shown already: what had the focus has it afterwards, and the page does not jump.
export function keepFocus(draw, same) {
  const held = document.activeElement,
    y = window.scrollY;
  const place = held?.id && "selectionStart" in held ? [held.selectionStart, held.selectionEnd] : null;
  draw();
  if (!same) return;
  window.scrollTo(0, y);
  if (!held?.id || held.isConnected) return;
  const again = document.getElementById(held.id);
  again?.focus({ preventScroll: true });
  if (place?.[0] !== undefined && place?.[0] !== null) again?.setSelectionRange?.(...place);
}

export function card(cards, title, note, wide) {
  const node = el("section", { class: wide ? "card wide" : "card" });
  fillCard(node, title, note);
  cards.append(node);
  return node;
}
export function fillCard(node, title, note) {
  node.append(el("div", { class: "head" }, el("h2", {}, title)));
  if (note) node.append(el("p", { class: "note" }, note));
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
  add("money", saving.money, (amount) => money(amount, saving.currency, saving.money_error));
  add("CO₂e", saving.gco2e, (amount) => withError(amount, saving.gco2e_error, MASS));
  return tiles;
}

// A column: its name, what it shows of a row, and by which `key` the service sorts it, if it does.
// `sorting` has the present key and direction, and makes the address of another order.
export function table(caption, columns, rows, stack, sorting) {
  const kind = (c) => c.class || (c.num ? "num" : null);
  const heading = (c) => {
    if (!sorting || !c.key) return el("th", { scope: "col", class: kind(c) }, c.name);
    const here = sorting.by === c.key,
      order = sorting.desc ? "descending" : "ascending";
    const link = { id: `sort-${c.key}`, class: here ? `sort ${order}` : "sort", href: sorting.href(c.key) };
    const props = { scope: "col", class: kind(c), "aria-sort": here ? order : null };
    return el("th", props, el("a", link, c.name));
  };
  const cell = (row) => (c) => el("td", { class: kind(c), "data-name": c.name }, c.show(row));
  const body = rows.map((row) => el("tr", {}, columns.map(cell(row))));
  return el(
    "div",
    { class: "scroll" },
    el(
      "table",
      { class: stack ? "stack" : null },
      caption ? el("caption", {}, caption) : null,
      el("thead", {}, el("tr", {}, columns.map(heading))),
      el("tbody", {}, body),
    ),
  );
}

// How long ago, with the exact time as its title. A file is read at any time, so it shows that alone.
export function timeOf(text) {
  if (!text) return "";
  return el("time", { datetime: text, title: when(text) }, EMBEDDED ? when(text) : ago(text));
}
// "team/name" may break after the slash.
export function ownerText(owner) {
  const [first, ...rest] = (owner || "").split("/");
  return rest.length ? [`${first}/`, el("wbr"), rest.join("/")] : first;
}
export function fact(name, value, ...small) {
  const notes = small.filter(Boolean).map((line) => el("small", {}, line));
  return el("div", {}, el("dt", {}, name), el("dd", {}, value, notes));
}
export function button(name, click, props) {
  return el("button", { type: "button", on: { click }, ...props }, name);
}
// Choices of which one holds, such as the axis of a chart.
export function choice(label, options, held, pick) {
  const one = ([value, name]) => button(name, () => pick(value), { "aria-pressed": String(value === held) });
  return el("div", { class: "choice", role: "group", "aria-label": label }, options.map(one));
}

// A dialog over the page. `send` does what it is for; what goes wrong is said in the dialog, which then stays.
export const dialogIsOpen = () => document.querySelector("dialog[open]") !== null;
export function dialog(title, content, verb, send, danger) {
  const problem = el("p", { class: "bad", role: "alert" }),
    go = el("button", { class: danger ? "main danger" : "main", type: "submit" }, verb);
  const submit = async (event) => {
    event.preventDefault();
    go.disabled = true;
    try {
      await send();
      node.close();
      reload();
    } catch (wrong) {
      problem.textContent = wrong.message || "this needs a login";
    }
    go.disabled = false;
  };
  const form = el(
    "form",
    { on: { submit } },
    el("h2", { id: "dialog-title" }, title),
    content,
    problem,
    el(
      "p",
      { class: "bar end" },
      button("Cancel", () => node.close()),
      go,
    ),
  );
  const node = el("dialog", { "aria-labelledby": "dialog-title", on: { close: () => node.remove() } }, form);
  document.body.append(node);
  node.showModal();
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
