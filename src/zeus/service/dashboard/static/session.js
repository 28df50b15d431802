// Who looks at the page: logging in and out.
import { ask, request } from "./api.js";
import { clear } from "./charts.js";
import { el, main, missing, reload, titled } from "./dom.js";

const logoutButton = document.getElementById("logout"),
  whoBox = document.getElementById("who");
export let person = null; // as /api/v1/me tells it; null: not known

export function showLogin() {
  titled("Log in");
  clear();
  person = null;
  showPerson();
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
    await learnPerson();
    reload();
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

// No script can read the cookie, so the service is asked whose it is.
export async function learnPerson() {
  try {
    person = await ask("api/v1/me");
  } catch {
    person = null; // the page itself says that the service does not answer
  }
  showPerson();
}
export const servesAudit = () => !missing(person?.by); // an older service does neither
export const isAdmin = () => person?.scope === "admin";

// Whom a proxy signed in has nothing to log out of here, and "anybody" never logged in. An older service tells no `by`.
function showPerson() {
  const name = person?.name === "anybody" ? null : person?.name;
  whoBox.textContent = name || "";
  whoBox.title = name ? `signed in as ${name}, with scope ${person.scope}` : "";
  logoutButton.hidden = missing(name) || !["session", undefined, null].includes(person.by);
}

logoutButton.addEventListener("click", async () => {
  await request("POST", "logout");
  person = null;
  showPerson();
  reload();
});
