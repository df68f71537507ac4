// Shows the page that the address names, and keeps it up to date.
import {el, patch} from "./lib/dom.js";
import {follow} from "./lib/live.js";
import {health} from "./lib/health.js";
import {link, parseRoute} from "./lib/route.js";
import {heading, words} from "./lib/parts.js";
import {liveSource, Missing, reportSource} from "./lib/source.js";
import {startTheme} from "./lib/theme.js";
import {comparePage} from "./pages/compare.js";
import {difficultyPage} from "./pages/difficulty.js";
import {disputePage, disputesPage} from "./pages/disputes.js";
import {filePage} from "./pages/file.js";
import {filesPage} from "./pages/files.js";
import {joinPage} from "./pages/join.js";
import {moneyPage} from "./pages/money.js";
import {nodePage} from "./pages/node.js";
import {nodesPage} from "./pages/nodes.js";
import {overviewPage} from "./pages/overview.js";
import {poolsPage} from "./pages/pools.js";
import {searchPage} from "./pages/search.js";
import {stepPage} from "./pages/step.js";
import {stepsPage} from "./pages/steps.js";
import {trainingPage} from "./pages/training.js";
import {validatorPage} from "./pages/validator.js";
import {validatorsPage} from "./pages/validators.js";

// Name in the address → [page of all, page of one].
const ROUTES = {overview: [overviewPage], training: [trainingPage], difficulty: [difficultyPage], steps: [stepsPage, stepPage],
  nodes: [nodesPage, nodePage], files: [filesPage, filePage], validators: [validatorsPage, validatorPage],
  disputes: [disputesPage, disputePage], money: [moneyPage], pools: [poolsPage], compare: [comparePage], join: [joinPage],
  search: [searchPage]};
const byId = id => document.getElementById(id);
const run = JSON.parse(byId("run").textContent);
const source = run ? reportSource(run) : liveSource();
let overview = null, shown = "", turn = 0, moving = false;

async function renew() {
  const own = ++turn, route = parseRoute(location.hash), page = ROUTES[route.name]?.[route.id == null ? 0 : 1];
  let failure = "", content;
  try {
    const [newest, data] = await Promise.all([source.get("overview"), page?.load(source, route, renew)]);
    overview = newest;
    content = page ? page.view(data, {route, overview, source, now: overview.time, renew}) : nowhere();
  } catch (error) {
    if (error instanceof Missing) content = missing(error);
    else failure = error instanceof TypeError ? "no connection" : error.message;
    if (!source.live) console.error(error);
  }
  if (own !== turn) return;
  frame(route, page, failure);
  if (content) place(content);
  else if (shown !== location.hash) place([heading("Not reachable")]);
}

const nowhere = () => [heading("No such page"), el("p", {}, el("a", {href: "#/"}, "To the overview"))];
const missing = error => [heading("Not found"), el("p", {class: "empty"}, words(error.message, 200)),
  el("p", {}, el("a", {href: "#/"}, "To the overview"))];

// Another page begins at its top, its heading focused, so that a screen reader says where one is; the same page only
// changes what has changed.
function place(content) {
  const main = byId("main");
  main.removeAttribute("aria-busy");
  if (shown !== location.hash) main.replaceChildren();
  patch(main, ...content);
  if (moving) {
    scrollTo(0, 0);
    main.querySelector("h1")?.focus({preventScroll: true});
  }
  moving = false;
  shown = document.documentElement.dataset.shown = location.hash;
}

function frame(route, page, failure) {
  const title = page?.title(route) ?? "No such page", name = overview?.name ?? "muster";
  document.title = `${title} · ${name.slice(0, 80)}`;
  patch(byId("name"), words(name, 40));
  for (const a of document.querySelectorAll("#nav a"))
    if (parseRoute(a.getAttribute("href")).name === route.name) a.setAttribute("aria-current", "page");
    else a.removeAttribute("aria-current");
  const {tone, word, detail} = source.live ? health(overview, failure) : {tone: "", word: "report", detail: ""};
  const live = byId("live");
  if (live.textContent !== word) live.textContent = word;  // Screen readers announce whatever is written here.
  live.className = `pill ${tone}`;
  patch(byId("notice"), detail ? el("p", {class: `banner ${tone}`}, detail) : null);
}

byId("search").addEventListener("submit", event => {
  event.preventDefault();
  location.hash = link("search", null, {q: byId("query").value});
});
byId("skip").addEventListener("click", event => {
  event.preventDefault();  // The address names the page, not a place in it.
  byId("main").focus();
});
addEventListener("hashchange", () => {
  moving = true;
  byId("main").setAttribute("aria-busy", "true");
  renew();
});
startTheme(byId("theme"));
if (!source.live) for (const a of document.querySelectorAll("#nav .live-only")) a.remove();
if (source.live) follow(renew);
else renew();
