// Who changed a job, and when: nothing in it is ever changed or removed.
import { ask, pathOf } from "./api.js";
import { button, card, missing, table, timeOf } from "./dom.js";
import { count } from "./format.js";

// `audit` is its first page; null: an older service keeps none.
export function auditCard(cards, job, audit) {
  if (!audit) return;
  const node = card(cards, "Audit", "Who changed this job. Entries are never changed, and outlive the job.", true);
  const entries = [...audit.entries];
  const draw = () => {
    node.querySelector(".scroll")?.remove();
    node.querySelector(".more")?.remove();
    node.append(table(count(audit.total, "entry", "entries"), AUDIT_COLUMNS, entries, true));
    if (entries.length < audit.total) node.append(button("Earlier", more, { class: "more" }));
  };
  const more = async () => {
    const page = await ask(`${pathOf(job.job)}/audit?offset=${entries.length}&limit=100`);
    entries.push(...page.entries);
    draw();
  };
  draw();
}

const AUDIT_COLUMNS = [
  { name: "When", show: (one) => timeOf(one.at) },
  { name: "Who", class: "name", show: (one) => one.who || "unknown" },
  { name: "From", show: (one) => one.from || "" },
  { name: "What", show: (one) => one.action },
  { name: "Details", class: "reason", show: (one) => detailText(one.details) },
];
function detailText(details) {
  if (missing(details) || typeof details !== "object") return details ?? "";
  const plainly = (one) => (one !== null && typeof one === "object" ? JSON.stringify(one) : String(one));
  const value = (one) => (one && "old" in Object(one) ? `${plainly(one.old)} → ${plainly(one.new)}` : plainly(one));
  return Object.entries(details)
    .map(([name, one]) => `${name.replaceAll("_", " ")}: ${value(one)}`)
    .join("; ");
}
