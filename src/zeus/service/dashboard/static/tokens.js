// The tokens of the service, for an admin. Making and revoking one stays with the command line.
import { ask } from "./api.js";
import { clear } from "./charts.js";
import { el, main, table, timeOf, titled } from "./dom.js";
import { count } from "./format.js";

export const tokensView = { show: showTokens, pulse: tokensPulse };

async function tokensPulse() {
  await ask("api/v1/pulse?limit=1");
  return String(Math.floor(Date.now() / 60_000)); // once a minute: uses change no stamp
}

async function showTokens() {
  const found = await ask("api/v1/tokens"),
    tokens = found.tokens || found;
  return () => {
    titled("Tokens");
    clear();
    main.append(
      el("h1", {}, "Tokens"),
      el(
        "p",
        { class: "lead" },
        "Who may use this service. Make one with ",
        el("code", {}, "zeus token create NAME"),
        ", and revoke one with ",
        el("code", {}, "zeus token revoke ID"),
        ".",
      ),
      table(count(tokens.length, "token"), TOKEN_COLUMNS, tokens, true),
    );
  };
}

const isOver = (text) => Boolean(text) && Date.parse(text) <= Date.now();
function tokenState(token) {
  if (token.revoked_at) return el("span", { class: "pill bad" }, "revoked");
  return isOver(token.expires_at)
    ? el("span", { class: "pill bad" }, "expired")
    : el("span", { class: "pill good" }, "valid");
}
const TOKEN_COLUMNS = [
  { name: "Name", class: "name", show: (t) => (t.team ? `${t.team}/${t.name}` : t.name) },
  { name: "State", show: tokenState },
  { name: "Scope", show: (t) => t.scope },
  { name: "Created", show: (t) => timeOf(t.created_at) },
  { name: "Expires", show: (t) => (t.expires_at ? timeOf(t.expires_at) : "never") },
  { name: "Last use", show: (t) => (t.used_at ? timeOf(t.used_at) : "never") },
  { name: "Id", show: (t) => el("code", {}, t.id) },
];
