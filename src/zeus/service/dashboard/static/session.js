// Logging in and out.
import { ask } from "./api.js";
import { go } from "./app.js";
import { clear } from "./charts.js";
import { crumbs, el, main, missing } from "./dom.js";

export const logoutButton = document.getElementById("logout");
export function showLogin() {
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
export async function showLogout() {
  try {
    const { name } = await ask("api/v1/me");
    logoutButton.hidden = missing(name) || name === "anybody";
  } catch {
    /* the page itself says that the service does not answer */
  }
}

export async function logout() {
  await fetch("logout", { method: "POST", credentials: "same-origin" });
  logoutButton.hidden = true;
  go(true);
}
