// The dashboard's library: elements, charts, formats and where documents come from. library.js and pages.js are joined
// into one inline script, since a report opened from a disk may not load modules.

// Elements and their renewal. Strings become text nodes or attributes only: nothing here parses markup.

const handlers = new WeakMap();

function fill(node, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value == null || value === false) continue;
    if (name.startsWith("on")) on(node, name, value);
    else if (name === "style") Object.assign(node.style, value);
    else if (name === "spec") node.spec = value;
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.flat(Infinity).filter(child => child != null && child !== false));
  return node;
}

function on(node, name, listener) {
  const known = handlers.get(node) ?? {};
  if (!known[name]) node.addEventListener(name.slice(2), event => handlers.get(node)[name](event));
  handlers.set(node, {...known, [name]: listener});
}

// el("a", {href, class, onclick, style: {…}, spec: data of one of our own elements}, …children); null is nothing.
const el = (tag, properties = {}, ...children) => fill(document.createElement(tag), properties, children);
// The parser knows the namespace of SVG, so that the page needs no address, not even that one.
const draw = (tag, properties = {}, ...children) =>
  fill(document.createElementNS(document.getElementById("svg").namespaceURI, tag), properties, children);

// Makes the children of `parent` those given, keeping every element that is still there: focus, scroll positions, open
// details and charts survive.
function patch(parent, ...children) {
  const wanted = children.flat(Infinity).filter(child => child != null && child !== false)
    .map(child => child instanceof Node ? child : document.createTextNode(String(child)));
  const old = [...parent.childNodes];
  wanted.forEach((next, place) => {
    const now = old[place];
    if (!now) parent.append(next);
    else if (alike(now, next)) update(now, next);
    else now.replaceWith(next);
  });
  for (const rest of old.slice(wanted.length)) rest.remove();
}

const alike = (now, next) => now.nodeName === next.nodeName && now.dataset?.key === next.dataset?.key;

function update(now, next) {
  if (now.nodeType === Node.TEXT_NODE) {
    if (now.data !== next.data) now.data = next.data;
    return;
  }
  renewAttributes(now, next);
  for (const [name, listener] of Object.entries(handlers.get(next) ?? {})) on(now, name, listener);
  if (next.spec !== undefined) now.spec = next.spec;
  else patch(now, ...next.childNodes);
}

function renewAttributes(now, next) {
  for (const {name} of [...now.attributes])
    if (!next.hasAttribute(name) && name !== "open" && name !== "style") now.removeAttribute(name);
  for (const {name, value} of [...next.attributes])
    if (name !== "style" && name !== "value" && now.getAttribute(name) !== value) now.setAttribute(name, value);
  if (now.style && now.style.cssText !== next.style.cssText) now.style.cssText = next.style.cssText;
}

// Says when to ask again: whenever the service tells of a change, else every few seconds.

const LEAST_MS = 1500, POLL_MS = 4000, HIDDEN_MS = 20_000, RETRY_MS = 15_000;

// Calls `renew` until the page is closed, never twice at a time.
function follow(renew) {
  let busy = false, due = null, streaming = false, last = 0;

  async function run() {
    due = null;
    if (busy) return later(LEAST_MS);
    busy = true;
    last = Date.now();
    try {
      await renew();
    } finally {
      busy = false;
      later(document.hidden ? HIDDEN_MS : streaming ? RETRY_MS : POLL_MS);
    }
  }

  function later(wait) {
    clearTimeout(due);
    due = setTimeout(run, wait);
  }

  function listen() {
    if (!globalThis.EventSource) return;
    const events = new EventSource("v1/events");
    events.addEventListener("change", () => {
      streaming = true;
      if (!document.hidden) later(Math.max(0, last + LEAST_MS - Date.now()));
    });
    events.onerror = () => {
      streaming = false;
      if (events.readyState !== EventSource.CLOSED) return;  // The browser tries again by itself.
      events.close();
      setTimeout(listen, RETRY_MS);
    };
  }

  listen();
  document.addEventListener("visibilitychange", () => document.hidden || later(0));
  addEventListener("pagehide", () => clearTimeout(due));
  later(0);
}

// The address of a page is the part behind `#`, so that links can be shared and also work in a report on disk. Pure.

// "#/nodes/0xab?after=25" → {name: "nodes", id: "0xab", query: {after: "25"}}.
function parseRoute(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split("?");
  const [name, id] = path.split("/").map(decoded);
  return {name: name || "overview", id: id || null, query: Object.fromEntries(new URLSearchParams(query))};
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

// link("nodes", "0xab", {after: 25}) → "#/nodes/0xab?after=25"; empty parameters are left out.
function link(name, id = null, query = {}) {
  const kept = Object.entries(query).filter(([, value]) => value != null && value !== "");
  const path = id == null ? name : `${name}/${encodeURIComponent(id)}`;
  return `#/${path}${kept.length ? `?${new URLSearchParams(kept)}` : ""}`;
}

// Light or dark: as the system prefers, until the reader chooses. The choice stays in this browser.

const KEY = "muster-theme", NEXT = {system: "light", light: "dark", dark: "system"};

function stored() {
  try {
    return localStorage.getItem(KEY) ?? "system";
  } catch {
    return "system";  // A report opened from a disk may have no storage.
  }
}

function apply(choice, button) {
  document.documentElement.style.colorScheme = choice === "system" ? "light dark" : choice;
  button.textContent = {system: "◐", light: "○", dark: "●"}[choice];
  button.setAttribute("aria-label", `Colours: ${choice}. Change to ${NEXT[choice]}`);
  dispatchEvent(new Event("themechange"));
}

function startTheme(button) {
  let choice = NEXT[stored()] ? stored() : "system";
  apply(choice, button);
  button.addEventListener("click", () => {
    choice = NEXT[choice];
    try {
      localStorage.setItem(KEY, choice);
    } catch {
      // It holds for this visit.
    }
    apply(choice, button);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => dispatchEvent(new Event("themechange")));
}

// Figures and times as text. Pure.

const SHORT = new Intl.NumberFormat("en", {notation: "compact", maximumFractionDigits: 1});
const WHOLE = new Intl.NumberFormat("en", {maximumFractionDigits: 0});

// Grains (1e-9 token; decimal text, BigInt or a safe integer) as tokens, exactly.
function tokens(baseUnits) {
  const text = String(baseUnits), digits = text.replace("-", "").padStart(10, "0");
  const whole = digits.slice(0, -9).replace(/\B(?=(\d{3})+$)/g, ","), rest = digits.slice(-9).replace(/0+$/, "");
  return (text.startsWith("-") ? "−" : "") + whole + (rest && `.${rest}`);
}

const count = value => value == null ? "–" : WHOLE.format(value);
const compact = value => value == null ? "–" : Math.abs(value) < 10_000 ? count(value) : SHORT.format(value);
const share = value => value == null ? "–" : `${Math.round(value * 1000) / 10}%`;

// About four significant digits.
function figure(value) {
  if (value == null) return "–";
  if (typeof value !== "number") return String(value);
  if (Number.isInteger(value)) return count(value);
  const size = Math.abs(value);
  return size < 0.001 || size >= 1e6 ? value.toExponential(2) : String(+value.toPrecision(4));
}

const short = text => text.length > 16 ? `${text.slice(0, 6)}…${text.slice(-4)}` : text;
const clipped = (text, most = 200) => text.length > most ? `${text.slice(0, most)}…` : text;

function duration(seconds) {
  if (seconds == null) return "–";
  if (seconds < 10) return `${+seconds.toFixed(1)} s`;
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172_800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86_400)} days`;
}

const ago = (time, now) => time ? `${duration(Math.max(0, Math.round(now - time)))} ago` : "never";
const clock = time => time ? new Date(time * 1000).toISOString().replace("T", " ").slice(0, 19) + " UTC" : "–";
const plural = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;

// Answers from the run that is embedded in a report, in the form in which the service gives them. Pure.

const newestFirst = (rows, {after, limit = 25}, id) => {
  const rest = after == null ? rows : rows.filter(row => id(row) < +after);
  const page = rest.slice(0, +limit);
  return {rows: page, total: rows.length, next: rest.length > page.length ? id(page.at(-1)) : null};
};
const byPlace = (rows, {after = 0, limit = 25}) => ({rows: rows.slice(+after, +after + +limit), total: rows.length,
  next: +after + +limit < rows.length ? +after + +limit : null});
const same = (one, other) => String(one).toLowerCase() === String(other).toLowerCase();
const ORDERS = {earned: row => BigInt(row.earned), units: row => BigInt(row.units), slashed: row => BigInt(row.slashed)};

const LISTS = {
  "policy-steps": (run, asked) => newestFirst([...run.steps].reverse(), asked, row => row.step),
  "submissions": ({record}, asked) => newestFirst(record.submissions.filter(row =>
    (!asked.node || same(row.node, asked.node)) && (!asked.status || row.status === asked.status)
    && (asked.step == null || row.step === +asked.step)), asked, row => row.sequence),
  "nodes": ({record}, asked) => byPlace(ordered(record.nodes.filter(row =>
    (!asked.state || row.state === asked.state) && (!asked.operator || same(row.operator, asked.operator))),
  ORDERS[asked.order]), asked),
  "validators": ({record}, asked) => byPlace(record.validators, asked),
  "disputes": ({record}, asked) => byPlace(record.disputes, asked),
  "canaries": ({record}, asked) => byPlace(record.canaries, asked),
  "challenges": ({record}, asked) => byPlace(record.challenges, asked),
  "slashes": ({record}, asked) => byPlace(record.slashes, asked),
  "ledger": ({record}, asked) => byPlace(record.ledger, asked),
  "search": (run, {q}) => ({query: q, hits: hits(run, q.trim().toLowerCase())}),
  "overview": run => run.overview,
  "history": run => run.history,
};

const ONES = {
  "policy-steps": (run, id) => run.steps.find(row => row.step === +id),
  "nodes": ({record}, id) => record.nodes.find(row => same(row.address, id)),
  "validators": ({record}, id) => record.validators.find(row => same(row.address, id)),
  "submissions": (run, id) => run.details.submissions.find(row => row.sequence === +id)
    ?? run.record.submissions.find(row => row.sequence === +id),
};

const PARTS = {
  "verdicts": (run, id) => run.details.verdicts.find(row => row.sequence === +id),
  "rollouts": (run, id) => run.details.rollouts.find(row => row.sequence === +id),
};

// The document at a path such as `nodes`, `nodes/0x…` or `submissions/3/verdicts`; undefined where there is none.
function embedded(run, path, asked) {
  const [kind, id, part] = path.split("/");
  return part ? PARTS[part]?.(run, id) : id ? ONES[kind]?.(run, id) : LISTS[kind]?.(run, asked);
}

function ordered(rows, key) {
  return key ? [...rows].sort((a, b) => key(a) < key(b) ? 1 : key(a) > key(b) ? -1 : 0) : rows;
}

function hits({record, steps}, text) {
  const found = [], number = /^#?\d{1,9}$/.test(text) ? +text.replace("#", "") : null;
  const begins = value => text.length >= 4 && value.toLowerCase().replace(/^0x/, "").startsWith(text.replace(/^0x/, ""));
  const named = name => text && name.toLowerCase().includes(text);
  for (const row of record.submissions)
    if (row.sequence === number || begins(row.sha256) || begins(row.tx))
      found.push({kind: "submission", id: String(row.sequence), label: `file ${row.sequence}`});
  for (const row of steps)
    if (row.step === number) found.push({kind: "step", id: String(row.step), label: `policy step ${row.step}`});
  for (const row of record.nodes) {
    if (begins(row.address) || named(row.name)) found.push({kind: "node", id: row.address, label: row.name || "node"});
    if (begins(row.operator)) found.push({kind: "operator", id: row.operator, label: "operator of nodes"});
  }
  for (const row of record.validators)
    if (begins(row.address) || named(row.name))
      found.push({kind: "validator", id: row.address, label: row.name || "owner of seats"});
  return [...new Map(found.map(hit => [hit.kind + hit.id, hit])).values()].slice(0, 20);
}

// What pages are built of: cards, tiles, pills, tables with pages, links to everything that has a page.

const TONES = new Map(Object.entries({healthy: "good", accepted: "good", accept: "good", finished: "good", training: "good",
  open: "good", unhealthy: "warn", waiting: "warn", unsure: "warn", void: "warn", unavailable: "warn",
  paused: "warn", understaffed: "warn", dead: "bad", ejected: "bad", rejected: "bad", malformed: "bad", canary: "bad"}));
const toneOf = text => TONES.get(text) ?? (text.startsWith("reject") ? "bad" : "");
const pill = (text, tone = toneOf(text)) => el("span", {class: `pill ${tone}`}, text);

// A stranger's words: their direction stays theirs, and their length is limited.
const words = (text, most = 80) =>
  text ? el("bdi", {class: "words", title: text.length > most ? clipped(text, 500) : null}, clipped(text, most)) : "–";

const card = (title, {note, wide, id, action} = {}, ...children) =>
  el("section", {class: `card ${wide ? "wide" : ""}`, id},
    el("div", {class: "card-head"}, el("h2", {}, title), action), ...children, note && el("p", {class: "note"}, note));

// entries: [label, value (text or nodes), {tone, sub, href}].
const tiles = entries => el("dl", {class: "tiles"}, ...entries.map(([label, value, {tone, sub} = {}]) =>
  el("div", {class: "tile"}, el("dt", {}, label), el("dd", {class: tone}, value), sub && el("dd", {class: "sub"}, sub))));

// entries: [label, value]; those without a value are left out.
const facts = entries => el("dl", {class: "facts"}, ...entries.filter(([, value]) => value != null && value !== "")
  .map(([label, value]) => el("div", {}, el("dt", {}, label), el("dd", {}, value))));

const PAGES = {node: "nodes", operator: "operators", validator: "validators", submission: "files", step: "steps",
  dispute: "disputes"};
const to = (kind, id, text, title = null) => el("a", {href: link(PAGES[kind] ?? kind, id), title}, text);
const address = (kind, text) => to(kind, text, el("code", {}, short(text)), text);
const code = text => el("code", {title: text}, short(text));
const whole = text => el("code", {class: "whole"}, text);
const fileLink = sequence => to("submission", sequence, `#${sequence}`);
const stepLink = step => step == null ? "–" : to("step", step, String(step));
const unlocks = (time, now) => time > now ? `${clock(time).slice(0, 16)} UTC (in ${duration(time - now)})` : "now";
const when = (time, now) => el("time", {title: clock(time)}, ago(time, now));

// A transaction, linked to the network's explorer where it has one.
function transaction(tx, chain) {
  if (!tx) return null;
  const hash = tx.startsWith("0x") ? tx : `0x${tx}`;
  const known = /^https:\/\/[a-z0-9.-]+$/.test(chain?.explorer ?? "");
  return known ? el("a", {href: `${chain.explorer}/tx/${hash}`, rel: "noopener noreferrer"}, whole(hash)) : whole(hash);
}

// columns: [title, {n: right-aligned figures, main: what names the row}]; rows: arrays of cells.
function table(caption, columns, rows, empty = "Nothing yet.") {
  if (!rows.length) return el("p", {class: "empty"}, empty);
  const kind = ({n, main} = {}) => [n && "n", main && "main"].filter(Boolean).join(" ") || null;
  const head = columns.map(([title, how]) => el("th", {scope: "col", class: kind(how), role: "columnheader"}, title));
  const body = rows.map(cells => el("tr", {role: "row"}, ...cells.map((cell, place) => {
    const [title, how] = columns[place];
    return el("td", {class: kind(how), role: "cell", "data-label": title}, cell ?? "–");
  })));
  return el("div", {class: "scroll", tabindex: 0, role: "region", "aria-label": caption},
    el("table", {role: "table", "aria-label": caption},
      el("thead", {role: "rowgroup"}, el("tr", {role: "row"}, ...head)), el("tbody", {role: "rowgroup"}, ...body)));
}

// Links to the first and to the next page of a list.
function pager({rows, total, next}, route) {
  const first = route.query.after != null;
  if (!first && next == null) return total == null || !rows.length ? null : el("p", {class: "note"}, `${count(total)} in all`);
  return el("nav", {class: "pager", "aria-label": "Pages of this list"},
    first ? el("a", {href: link(route.name, route.id, {...route.query, after: null})}, "First page") : null,
    next != null ? el("a", {href: link(route.name, route.id, {...route.query, after: next})}, "Next page") : null,
    total != null && el("span", {class: "note"}, `${count(total)} in all`));
}

// A row of links that narrow a list: choices are [label, value].
const choices = (label, name, options, route) => el("nav", {class: "choices", "aria-label": label},
  ...options.map(([text, value]) => {
    const chosen = (route.query[name] ?? "") === value;
    return el("a", {href: link(route.name, route.id, {...route.query, [name]: value, after: null}),
      "aria-current": chosen ? "true" : null}, text);
  }));

const heading = (title, ...beside) =>
  el("div", {class: "heading"}, el("h1", {tabindex: -1}, title), ...beside);
const lead = (...children) => el("p", {class: "lead"}, ...children);

// <run-chart>: lines or stacked bars over policy steps, drawn by uPlot, with its figures as a table for everyone.
// Its `spec`: {title, steps, series: [{label, values, tone, dots}], stacked, format, zero, axis, named: a step as text, empty}.

const HEIGHT = 200, SMALL = 150, MOST_ROWS = 500;
const styled = (name, host) => getComputedStyle(host).getPropertyValue(name).trim();
const paint = (tone, host) => resolved(`var(--c-${tone})`, host);

// The colour that a CSS value comes to here and now: light-dark() is resolved only where it is used.
function resolved(value, host) {
  const probe = host.probe ??= host.appendChild(el("i", {class: "probe", "aria-hidden": "true"}));
  probe.style.color = value;
  return getComputedStyle(probe).color;
}

class RunChart extends HTMLElement {
  #spec = null;
  #plot = null;
  #drawn = "";

  get spec() { return this.#spec; }
  set spec(spec) {
    this.#spec = spec;
    if (this.isConnected) this.#renew();
  }

  connectedCallback() {
    this.figureBox = el("div", {class: "plot", role: "img"});
    this.legend = el("div", {class: "legend", "aria-hidden": "true"});
    this.figures = el("details", {class: "figures"});
    this.append(this.figureBox, this.legend, this.figures);
    this.onTheme = () => { this.#drawn = ""; this.#renew(); };
    addEventListener("themechange", this.onTheme);
    this.observer = new ResizeObserver(() => this.#plot?.setSize({width: this.#width(), height: this.#height()}));
    this.observer.observe(this);
    this.#renew();
  }

  disconnectedCallback() {
    removeEventListener("themechange", this.onTheme);
    this.observer.disconnect();
    this.#plot?.destroy();
    this.#plot = null;
    this.#drawn = "";
    this.replaceChildren();
    this.probe = null;
  }

  #width() { return Math.max(200, this.figureBox.clientWidth || this.clientWidth || 300); }
  #height() { return this.#spec.small ? SMALL : HEIGHT; }

  #renew() {
    if (!this.#spec) return;
    const {title, steps, series, format = figure, named = String} = this.#spec, content = JSON.stringify([steps, series, title]);
    if (content === this.#drawn) return;
    const shape = JSON.stringify(series.map(one => one.label));
    if (this.#plot && this.#drawn && this.shape === shape && !this.#spec.stacked) this.#plot.setData(dataOf(this.#spec));
    else this.#build();
    this.#drawn = content;
    this.shape = shape;
    this.figureBox.setAttribute("aria-label", described(this.#spec));
    this.#legend(null);
    this.figures.hidden = !steps.length;
    const rows = steps.slice(-MOST_ROWS).map((step, i) => el("tr", {}, el("th", {scope: "row"}, named(step)),
      ...series.map(one => el("td", {}, format(one.values[i + Math.max(0, steps.length - MOST_ROWS)])))));
    patch(this.figures, el("summary", {}, "Figures"), el("div", {class: "scroll", tabindex: 0, role: "region",
      "aria-label": `Figures: ${title}`}, el("table", {}, el("caption", {class: "hidden"}, title), el("thead", {},
      el("tr", {}, el("th", {scope: "col"}, this.#spec.axis ?? "step"),
        ...series.map(one => el("th", {scope: "col"}, one.label)))), el("tbody", {}, ...rows))));
  }

  #legend(place) {
    const {series, steps, stacked, format = figure, axis = "step", named = String} = this.#spec;
    if (!steps.length) return patch(this.legend);
    const at = place ?? steps.length - 1;
    const all = values => stacked ? values.reduce((sum, value) => sum + (value ?? 0), 0)
      : values.findLast(value => value != null);
    patch(this.legend, ...series.map(one => el("span", {}, el("i", {class: `swatch ${one.tone}`}), one.label, " ",
      el("b", {}, format(place == null ? all(one.values) : one.values[at])))),
    el("span", {class: "dim"}, place == null ? "" : `${axis} ${named(steps[at])}`));
  }

  #build() {
    this.#plot?.destroy();
    this.#plot = null;
    if (!globalThis.uPlot || !this.#spec.steps.length) {
      patch(this.figureBox, el("p", {class: "empty"},
        this.#spec.empty ?? "Nothing to draw yet: the first policy steps begin this chart."));
      return;
    }
    this.figureBox.replaceChildren();
    this.#plot = new globalThis.uPlot(options(this.#spec, this, this.#width(), this.#height(),
      place => this.#legend(place)), dataOf(this.#spec), this.figureBox);
  }
}
customElements.define("run-chart", RunChart);

const chart = spec => el("run-chart", {spec});

function described({title, steps, series, format = figure}) {
  const parts = series.map(one => {
    const known = one.values.filter(value => value != null);
    return known.length ? `${one.label}: ${format(known[0])} at first, ${format(known.at(-1))} now` : `${one.label}: none`;
  });
  return `${title}, ${steps.length} points. ${parts.join(". ")}.`;
}

// Stacked series are drawn as their sums, the largest first, so that each covers the upper part of the one before.
function dataOf({steps, series, stacked}) {
  if (!stacked) return [steps, ...series.map(one => one.values)];
  let below = steps.map(() => 0);
  const sums = series.map(one => below = below.map((sum, i) => sum + (one.values[i] ?? 0)));
  return [steps, ...sums.reverse()];
}

function options(spec, host, width, height, onCursor) {
  const {uPlot} = globalThis, {format = figure, stacked, zero = true, named = String} = spec;
  const dim = resolved("var(--dim)", host), line = resolved("var(--line)", host);
  const axis = {stroke: dim, grid: {stroke: line, width: 1}, ticks: {show: false}, font: `11px ${styled("font-family", host)}`};
  const drawn = stacked ? [...spec.series].reverse() : spec.series;
  return {
    width, height, legend: {show: false}, padding: [10, 8, 0, 0],
    cursor: {y: false, points: {size: 7}, drag: {x: false, y: false}, sync: {key: "steps"}},
    scales: {x: {time: false, range: (_, low, high) => low === high ? [low - 1, high + 1] : stacked
      ? [low - .6, high + .6] : [low, high]},
    y: {range: (_, low, high) => span(...(stacked ? [low, high] : calm(drawn.flatMap(one => one.values), low, high)), zero)}},
    axes: [{...axis, space: 48, size: 26, gap: 4,
      values: (_, ticks) => ticks.map(tick => Number.isInteger(tick) ? named(tick) : "")},
      {...axis, size: 52, values: (_, ticks) => ticks.map(tick => format(tick))}],
    series: [{}, ...drawn.map(one => ({label: one.label, spanGaps: Boolean(stacked),
      ...(stacked ? {fill: paint(one.tone, host), width: 0, stroke: paint(one.tone, host), points: {show: false},
        paths: uPlot.paths.bars({size: [.72, 40]})}
        : {stroke: paint(one.tone, host), width: one.dots ? 0 : 2, points: one.dots
          ? {show: true, size: 7, fill: paint(one.tone, host), stroke: paint(one.tone, host)}
          : {show: one.values.some((value, i) => value != null && one.values[i - 1] == null && one.values[i + 1] == null)}})}))],
    hooks: {setCursor: [plot => onCursor(plot.cursor.idx ?? null)]},
  };
}

// [low, high] without what lies so far out that nothing else could be told apart: a line leaves the chart there.
function calm(values, low, high) {
  const sorted = values.filter(Number.isFinite).sort((a, b) => a - b), edge = Math.floor(sorted.length / 50);
  if (sorted.length < 20) return [low, high];
  const [first, last] = [sorted[Math.max(1, edge)], sorted[sorted.length - 1 - Math.max(1, edge)]], usual = 10 * (last - first);
  return usual ? [low < first - usual ? first : low, high > last + usual ? last : high] : [low, high];
}

function span(low, high, zero) {
  if (low == null) return [0, 1];
  const bottom = zero ? Math.min(0, low) : low, top = zero ? Math.max(0, high) : high, room = (top - bottom || 1) * .08;
  return [bottom < 0 || !zero ? bottom - room : 0, top + room];
}

// <node-map>: every node as a square, coloured by its state, in the order of joining; a click opens the node.
// Its `spec`: {states: one letter for each, open: place → void}.

const STATES = [["h", "healthy", "good"], ["u", "unhealthy", "warn"], ["w", "waiting", "grey"], ["d", "dead", "bad"],
  ["e", "ejected", "violet"], ["l", "left", "faint"]];

class NodeMap extends HTMLElement {
  #spec = null;

  get spec() { return this.#spec; }
  set spec(spec) {
    this.#spec = spec;
    if (this.isConnected) this.#draw();
  }

  connectedCallback() {
    this.observer = new ResizeObserver(() => this.#draw());
    this.observer.observe(this);
    this.#draw();
  }

  disconnectedCallback() { this.observer.disconnect(); }

  #draw() {
    if (!this.#spec) return;
    const {states, open} = this.#spec, width = this.clientWidth || 300;
    const pitch = states.length > 4000 ? 6 : states.length > 400 ? 11 : 18, side = pitch - Math.max(2, pitch / 6);
    const across = Math.max(1, Math.floor(width / pitch)), high = Math.ceil(states.length / across) * pitch;
    const paths = STATES.map(([letter, name, tone]) => {
      let path = "";
      for (let place = 0; place < states.length; place++)
        if (states[place] === letter)
          path += `M${place % across * pitch} ${Math.floor(place / across) * pitch}h${side}v${side}h${-side}z`;
      return path && draw("path", {d: path, class: `fill ${tone}`}, draw("title", {}, name));
    });
    const told = STATES.map(([letter, name]) => [name, states.split(letter).length - 1]).filter(([, number]) => number);
    const click = event => {
      const box = event.currentTarget.getBoundingClientRect();
      const place = Math.floor((event.clientY - box.top) / pitch) * across + Math.floor((event.clientX - box.left) / pitch);
      if (place < states.length) open(place);
    };
    patch(this, draw("svg", {width: across * pitch, height: Math.max(high, 1), role: "img", onclick: click,
      "aria-label": `Nodes by state: ${told.map(([name, number]) => `${count(number)} ${name}`).join(", ") || "none"}`},
    ...paths.filter(Boolean)));
  }
}
customElements.define("node-map", NodeMap);

const nodeMap = (states, open) => el("node-map", {spec: {states, open}});

// What the service's own view of the chain is worth. A chain that does not answer, or a service that lags behind it, is
// said to be that: it never reads as if somebody had cheated. Pure.

const SILENT_SECONDS = 15, STILL_SECONDS = 60;

// {tone, word, detail} for the pill in the header and the banner below it.
function health(overview, failure) {
  if (failure) return {tone: "bad", word: "offline", detail: `The pool's service does not answer (${failure}). What `
    + "stands here is as it was when it last did."};
  if (!overview) return {tone: "", word: "connecting", detail: ""};
  const {error, age, head_age: still, head} = overview.chain;
  const as_of = `Everything here is as of block ${count(head)}; it says nothing about anyone's honesty.`;
  if (error || age == null || age > SILENT_SECONDS) {
    const since = age == null ? "" : `, since ${duration(age)}`;
    return {tone: "warn", word: "chain not followed",
      detail: `The service cannot follow the chain${since}${error ? `: ${error}` : ""}. ${as_of}`};
  }
  if (still > STILL_SECONDS) return {tone: "warn", word: "chain stands still",
    detail: `The chain has had no new block for ${duration(still)}. ${as_of}`};
  return {tone: "good", word: "live", detail: ""};
}

// {tone, word, findings} on the comparison of the ledger with the chain.
function compared(overview) {
  const {reconciliation: found, chain} = overview;
  if (!found) return {tone: "", word: "not compared with the chain yet", findings: []};
  const equal = found.ledger_matches_chain && found.escrow_balanced && !found.findings.length;
  const at = `at block ${count(found.block)}`;
  if (equal) return {tone: "good", word: `equal to the chain, to the last base unit, ${at}`
    + (found.current ? "" : "; newer events are being compared"), findings: []};
  if (!found.current || chain.error)
    return {tone: "warn", word: `being compared again: the service was behind the chain ${at}`, findings: []};
  return {tone: "bad", word: `differs from the chain ${at}`, findings: found.findings};
}

// Where pages get their documents from: the service, or, in a report, the run that is embedded in the page.

class Missing extends Error {}
const ANSWER_MS = 30_000;

// get(path, parameters) → the document that the service has at `v1/path`, asked for once by all who want it at the same
// time. Throws Missing for what is not there.
function liveSource() {
  const pending = new Map();
  async function fetched(url) {
    const answer = await fetch(url, {cache: "no-store", signal: AbortSignal.timeout(ANSWER_MS)});
    if (answer.ok) return answer.json();
    const told = await answer.json().catch(() => ({}));
    const words = told.error ?? `the service answers ${answer.status}`;
    throw answer.status === 404 || answer.status === 422 ? new Missing(words) : new Error(words);
  }
  return {
    live: true,
    get(path, parameters = {}) {
      const query = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value != null && value !== ""));
      const url = `v1/${path}${query.size ? `?${query}` : ""}`;
      if (!pending.has(url)) pending.set(url, fetched(url).finally(() => pending.delete(url)));
      return pending.get(url);
    },
  };
}

function reportSource(run) {
  return {
    live: false,
    run,
    async get(path, parameters = {}) {
      const found = embedded(run, path, parameters);
      if (found === undefined) throw new Missing("The report holds nothing of this name.");
      return found;
    },
  };
}
