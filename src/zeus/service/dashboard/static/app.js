// Moving about, and looking for news.
import { EMBEDDED, NeedsToken, ask } from "./api.js";
import { clear } from "./charts.js";
import { showCompare } from "./compare.js";
import { crumbs, el, main } from "./dom.js";
import { when } from "./format.js";
import { refreshRunning, showJob } from "./job.js";
import { listQuery, showList } from "./list.js";
import { logout, logoutButton, showLogin, showLogout } from "./session.js";

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
function addressOf(hash) {
  const [path, query] = hash.replace(/^#/, "").split("?"),
    parts = path.split("/").map(decoded);
  return { kind: parts[1], job: parts.slice(2).join("/"), search: new URLSearchParams(query || "") };
}
function pageOf(hash) {
  const { kind, job, search } = addressOf(hash);
  if (kind === "job") return showJob(job);
  return kind === "compare" ? showCompare(search) : showList(search);
}

let visits = 0;
export async function go(focus) {
  const visit = ++visits;
  try {
    const before = await pulse(); // first, so that what changes while the page is fetched is seen at the next beat
    const show = await pageOf(location.hash);
    if (visit !== visits) return; // the user has gone elsewhere meanwhile
    show();
    last = before;
    if (focus) {
      main.focus({ preventScroll: true });
      window.scrollTo(0, 0);
    }
    setLive(!EMBEDDED ? "live" : EMBEDDED.at ? `as of ${when(EMBEDDED.at)}` : "");
  } catch (wrong) {
    if (visit !== visits) return;
    if (wrong instanceof NeedsToken) {
      showLogin();
      return;
    }
    clear();
    crumbs([]);
    main.append(
      el(
        "div",
        { class: "card empty", role: "alert" },
        el("p", { class: "bad" }, wrong.message),
        el("p", {}, el("a", { href: "#/" }, "All jobs")),
      ),
    );
  }
}
function setLive(text) {
  document.getElementById("live").textContent = text;
}

let last = null,
  beats = 0;
const BEAT = 3000,
  RUNNING_BEATS = 2; // milliseconds; beats between two looks at running trials
// Of the jobs that are shown alone: a store may hold very many.
async function pulse() {
  const { kind, job, search } = addressOf(location.hash);
  const shown = kind === "job" ? [job] : kind === "compare" ? search.getAll("job") : [];
  const query = shown.length ? shown.map((id) => `job=${encodeURIComponent(id)}`).join("&") : listQuery(search);
  return JSON.stringify(await ask(`api/v1/pulse?${query}`));
}
async function beat() {
  try {
    const now = await pulse(),
      active = document.activeElement;
    const busy = main.contains(active) && ["INPUT", "SELECT"].includes(active.tagName);
    if (last !== null && now !== last && !busy && !main.querySelector("pre.log")) {
      const y = window.scrollY;
      await go(false);
      window.scrollTo(0, y);
    } else if (++beats % RUNNING_BEATS === 0) await refreshRunning();
    setLive(last === null || now === last ? "live" : "there is news: leave the field or the log to see it");
  } catch (wrong) {
    setLive(wrong instanceof NeedsToken ? "" : "the service does not answer");
  }
}

const themeButton = document.getElementById("theme");
function theme(name) {
  document.documentElement.dataset.theme = name;
  themeButton.textContent = name === "dark" ? "Light" : "Dark";
  try {
    localStorage.setItem("zeus-theme", name);
  } catch {
    /* a page in a file may keep nothing */
  }
}
let kept = null;
try {
  kept = localStorage.getItem("zeus-theme");
} catch {
  /* as above */
}
theme(kept || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"));
themeButton.addEventListener("click", () => {
  theme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
  go(false);
});
logoutButton.addEventListener("click", logout);
window.addEventListener("hashchange", () => go(true));
if (!EMBEDDED) {
  setInterval(() => {
    if (!document.hidden) beat();
  }, BEAT);
  showLogout();
}
go(false);
