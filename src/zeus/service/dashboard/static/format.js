// Numbers and savings in words.
import { missing } from "./dom.js";

export const ENDING_CLASSES = {
  converged: "good",
  open: "warm",
  stopped: "warm",
  not_converged: "bad",
  crashed: "bad",
  failed: "bad",
  lost: "soft",
  unfinished: "soft",
};
export const ENDINGS = {
  not_converged: "did not reach the target",
  stopped: "stopped early",
  converged: "reached",
  crashed: "crashed",
  lost: "lost",
  open: "running",
  failed: "failed",
  unfinished: "unfinished",
};
// Three digits at most, never an exponent.
export function digits(value, most = 3) {
  const rounded = Number(value.toPrecision(most)),
    size = Math.abs(rounded);
  if (size === 0) return "0";
  if (size < 0.001) return "less than 0.001";
  const places = Math.max(0, most - 1 - Math.floor(Math.log10(size)));
  const text = rounded.toFixed(places);
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

// The largest unit that the value reaches; the last one takes the rest.
export function unitOf(value, units) {
  const size = Math.abs(value);
  return units.find((unit) => size >= unit.from) || units[units.length - 1];
}
function inUnits(value, units) {
  if (missing(value)) return "unknown";
  const unit = unitOf(value, units);
  return `${digits(value / unit.factor)} ${unit.name}`;
}
export const ENERGY = [
  { name: "MWh", factor: 3.6e9, from: 3.6e9 },
  { name: "kWh", factor: 3.6e6, from: 3.6e5 },
  { name: "kJ", factor: 1e3, from: 999.5 },
  { name: "J", factor: 1, from: 0 },
];
export const TIME = [
  { name: "d", factor: 86400, from: 172800 },
  { name: "h", factor: 3600, from: 7200 },
  { name: "min", factor: 60, from: 120 },
  { name: "s", factor: 1, from: 0 },
];
export const MASS = [
  { name: "t", factor: 1e6, from: 999500 },
  { name: "kg", factor: 1e3, from: 999.5 },
  { name: "g", factor: 1, from: 0 },
];
export const energy = (value) => inUnits(value, ENERGY);
export const duration = (value) => inUnits(value, TIME);
export const mass = (value) => inUnits(value, MASS);
export const watts = (value) => (missing(value) ? "" : `${digits(value)} W`);
export const number = (value) => (missing(value) ? "" : String(value));
export const metricText = (value) => (missing(value) ? "" : String(Number(value.toPrecision(4))));
export const when = (text) => (text ? `${text.slice(0, 16).replace("T", " ")} UTC` : "");
export const clockTime = (ms) => `${new Date(ms).toISOString().slice(11, 16)} UTC`;
export const count = (n, noun, nouns = `${noun}s`) => `${n} ${n === 1 ? noun : nouns}`;

export function targetText(spec) {
  return `${spec.higher_is_better_metric ? "at least" : "at most"} ${metricText(spec.target_metric)}`;
}

// "3 h ago"; "in 6 d" for what is still to come.
export function ago(text, now = Date.now()) {
  const seconds = (now - Date.parse(text)) / 1000,
    unit = unitOf(seconds, AGO);
  const size = Math.floor(Math.abs(seconds) / unit.factor);
  if (Math.abs(seconds) < 60) return seconds < 0 ? "in a moment" : "just now";
  return seconds < 0 ? `in ${size} ${unit.name}` : `${size} ${unit.name} ago`;
}
const AGO = [
  { name: "d", factor: 86400, from: 172800 },
  { name: "h", factor: 3600, from: 7200 },
  { name: "min", factor: 60, from: 0 },
];

// How large a share is, without its sign: words around it say which way it went.
export function percent(share) {
  const size = 100 * Math.abs(share);
  return size < 0.05 ? "less than 0.1 %" : `${size.toFixed(size < 9.95 ? 1 : 0)} %`;
}

// "0.42 ± 0.02 EUR"
export function money(amount, currency, error) {
  const known = !missing(error) && Math.max(amount, error) >= 0.01,
    fine = known && error >= 5e-5 && error < 0.005 ? Math.ceil(-Math.log10(error)) : 2;
  const shown = (one) => (one === 0 ? "0" : one.toFixed(Math.max(amount, one) < 1000 ? fine : 0));
  const text = amount > 0 && amount < 0.01 && !known ? "less than 0.01" : shown(amount);
  return [text, known ? `± ${shown(error)}` : "", currency].filter(Boolean).join(" ");
}

// "1.2 ± 0.1 kWh": a value and its standard error in one unit.
export function withError(value, error, units) {
  if (missing(value)) return "unknown";
  if (missing(error)) return inUnits(value, units);
  const unit = unitOf(Math.max(Math.abs(value), error), units);
  return `${digits(value / unit.factor)} ± ${digits(error / unit.factor, 2)} ${unit.name}`;
}

const LIMITS_UNKNOWN = "as it ran: the default's power limits are not known";

// " (measured, ±1.2 kJ)", in the unit of the value; nothing where neither is known.
function certainty(basis, value, error) {
  const parts = basis === "measured" || basis === "estimated" ? [basis] : [],
    unit = unitOf(value, ENERGY);
  if (!missing(error)) parts.push(`±${digits(error / unit.factor, 2)} ${unit.name}`);
  if (basis === "as_it_ran") parts.push(LIMITS_UNKNOWN);
  return parts.length ? ` (${parts.join(basis === "as_it_ran" ? "; " : ", ")})` : "";
}

// 1: saved energy, -1: used more, 0: no difference that can be told from noise.
export function direction(saving) {
  if (!saving?.joules) return 0;
  const seen = saving.difference_seen ?? Math.abs(saving.joules) >= 2 * (saving.joules_error || 0);
  return seen ? Math.sign(saving.joules) : 0;
}
export const tint = (saving) => ["bad", "", "good"][direction(saving) + 1];

// The service says it, in the words of the command line. An older one has no sentence: then there is the number alone.
export function savingText(saving) {
  if (!saving) return "not known yet";
  return bound(saving.sentence || `${saving.joules > 0 ? "+" : ""}${energy(saving.joules)}`);
}
// No line breaks between a number, its error and its unit.
export const bound = (text) => text.replace(/ (?=%|±|[a-zA-Z]*(?:J|kWh|CO2e)\b)|(?<=±) /g, "\u00a0");

export function defaultText(job) {
  const usual = job.default;
  if (!usual) return `not known: ${job.default_why_not}`;
  const runs = usual.runs_measured ? `, ${count(usual.runs_measured, "run")} measured` : "";
  return (
    `${energy(usual.joules)} and ${duration(usual.seconds)} per run` +
    `${certainty(usual.basis, usual.joules, usual.joules_error)}${runs}`
  );
}

// "0.02 kWh, 0.42 EUR, 4.2 g CO₂e"; nothing where neither price nor intensity is given. Unknown is said, never 0.
export function usedWorth(footprint) {
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
