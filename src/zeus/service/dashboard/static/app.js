// Moving about, and looking for news.
import { NeedsToken, Unanswered } from "./api.js";
import { clear } from "./charts.js";
import { compareView } from "./compare.js";
import { dialogIsOpen, el, keepFocus, main, reload, titled } from "./dom.js";
import { EMBEDDED } from "./embedded.js";
import { fleetView } from "./fleet.js";
import { clockTime, when } from "./format.js";
import { jobView } from "./job.js";
import { listView } from "./list.js";
import { isAdmin, learnPerson, servesAudit, showLogin } from "./session.js";
import { tokensView } from "./tokens.js";

// show(address) fetches what it needs and returns how to draw it; pulse(address) is a text that changes with it;
// follow(), if there is one, draws what a running trial reports, which changes no pulse.
const VIEWS = { job: jobView, compare: compareView, fleet: fleetView, tokens: tokensView };

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
  return { kind: parts[1] || "", job: parts.slice(2).join("/"), search: new URLSearchParams(query || "") };
}
const viewOf = (address) => VIEWS[address.kind] || listView;

let visits = 0,
  arrived = -1, // the latest visit that was arrived; until then the next one is on its way
  last = null, // the pulse of what is shown; null: it could not be shown
  shown = null; // which view of what; a change within it moves neither focus nor scroll position
export async function go() {
  const visit = ++visits,
    address = addressOf(location.hash),
    place = `${address.kind}/${address.job}`;
  let before = null;
  try {
    before = await viewOf(address).pulse(address); // first, so that the next beat sees what changes meanwhile
    const draw = await viewOf(address).show(address);
    if (visit !== visits) return; // the user has gone elsewhere meanwhile
    arrived = visit;
    showViews(address);
    keepFocus(draw, place === shown);
    if (shown !== null && place !== shown) {
      main.focus({ preventScroll: true });
      window.scrollTo(0, 0);
    }
    last = before;
    shown = place;
    setLive("live");
  } catch (wrong) {
    if (visit !== visits) return;
    arrived = visit;
    last = wrong instanceof Unanswered ? null : before;
    shown = "";
    showViews(address);
    if (wrong instanceof NeedsToken) {
      setLive("");
      showLogin();
    } else showWrong(wrong);
  }
}
function showWrong(wrong) {
  clear();
  titled("Error");
  setLive(wrong instanceof Unanswered ? "away" : "live");
  main.append(
    el(
      "div",
      { class: "card empty", role: "alert" },
      el("h1", {}, "This cannot be shown"),
      el("p", { class: "bad" }, wrong.message),
      el("p", {}, el("a", { href: "#/" }, "All jobs")),
    ),
  );
}

function showViews(address) {
  const views = [
    ["Jobs", "#/", !(address.kind in VIEWS)],
    ["Fleet", "#/fleet", address.kind === "fleet"],
  ];
  if (isAdmin() && servesAudit()) views.push(["Tokens", "#/tokens", address.kind === "tokens"]);
  if (EMBEDDED && !EMBEDDED.fleet) views.splice(1, 1);
  const link = ([name, href, here]) => el("li", {}, el("a", { href, "aria-current": here ? "page" : null }, name));
  document.getElementById("views").replaceChildren(...views.map(link));
}

// "Live" stands there only while the service has answered at the last beat, and what is shown is new.
const liveBox = document.getElementById("live");
let answered = null;
function setLive(state) {
  if (state === "live") answered = Date.now();
  const away = answered ? `not live: no answer since ${clockTime(answered)}` : "the service does not answer";
  const words = EMBEDDED ? asOf() : { live: "Live", held: "news waits while you choose", away }[state] || "";
  liveBox.className = EMBEDDED ? "" : state;
  if (liveBox.textContent !== words) liveBox.textContent = words;
}
const asOf = () => (EMBEDDED.at ? `as of ${when(EMBEDDED.at)}` : "");

const BEAT = 3000,
  FOLLOW_BEATS = 2, // milliseconds; beats between two looks at running trials
  CHOOSING = 10_000; // milliseconds after the last key or click for which a list of choices may be open
let touched = 0;
for (const event of ["pointerdown", "keydown"])
  document.addEventListener(event, () => (touched = Date.now()), { capture: true });
const chooses = () =>
  dialogIsOpen() || (document.activeElement?.tagName === "SELECT" && Date.now() - touched < CHOOSING);
let beats = 0,
  beating = false;
async function beat() {
  if (beating || arrived < visits || main.querySelector("form.login")) return;
  beating = true;
  const address = addressOf(location.hash),
    visit = visits;
  try {
    const now = await viewOf(address).pulse(address);
    if (visit !== visits) return;
    const waits = now !== last && chooses();
    if (now !== last && !waits) await go();
    else if (++beats % FOLLOW_BEATS === 0) await viewOf(address).follow?.();
    if (last !== null) setLive(waits ? "held" : "live");
  } catch (wrong) {
    if (wrong instanceof NeedsToken) await go();
    else if (wrong instanceof Unanswered) setLive("away");
  } finally {
    beating = false;
  }
}

const themeButton = document.getElementById("theme"),
  systemIsDark = matchMedia("(prefers-color-scheme: dark)");
let chosenTheme = null;
try {
  chosenTheme = localStorage.getItem("zeus-theme");
} catch {
  /* a page in a file may keep nothing */
}
function showTheme() {
  const name = chosenTheme || (systemIsDark.matches ? "dark" : "light");
  document.documentElement.dataset.theme = name;
  themeButton.textContent = name === "dark" ? "Light" : "Dark";
}
themeButton.addEventListener("click", () => {
  chosenTheme = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  try {
    localStorage.setItem("zeus-theme", chosenTheme);
  } catch {
    /* as above */
  }
  showTheme();
  reload();
});
systemIsDark.addEventListener("change", () => {
  showTheme();
  reload();
});
window.addEventListener("hashchange", go);
showTheme();
if (EMBEDDED) go();
else {
  setInterval(() => {
    if (!document.hidden) beat();
  }, BEAT);
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) setLive("");
    else beat();
  });
  learnPerson().then(go);
}
