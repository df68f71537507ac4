// Elements, tables and figures. Every value becomes a text node or an attribute: nothing parses strings as markup.
const $ = id => document.getElementById(id);

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) if (value != null) node.setAttribute(name, value);
  node.append(...children.map(child => child ?? "–"));
  return node;
}
const el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
// The parser knows the namespace of SVG, so that the page needs no address, not even that one.
const draw = (tag, attributes, ...children) =>
  fill(document.createElementNS($("svg").namespaceURI, tag), attributes, children);

// columns: [title, CSS class]; rows: arrays of cells (text or nodes).
function table(columns, rows, empty) {
  if (!rows.length) return el("p", {class: "note"}, empty);
  const head = columns.map(([title, kind]) => el("th", {class: kind, scope: "col"}, title));
  const body = rows.map(cells => el("tr", {}, ...cells.map((cell, i) => el("td", {class: columns[i][1]}, cell))));
  return el("table", {}, el("thead", {}, el("tr", {}, ...head)), el("tbody", {}, ...body));
}

const TONES = new Map(Object.entries({healthy: "good", accepted: "good", finished: "good", training: "good", yes: "good",
  unhealthy: "warn", pending: "warn", waiting: "warn", dead: "bad", ejected: "bad", rejected: "bad", malformed: "bad",
  no: "bad"}));
const pill = (text, tone = TONES.get(text)) => el("span", {class: `pill ${tone ?? ""}`}, text);
const yes = value => pill(value ? "yes" : "no");

// Everything but an address is shown as it is.
const address = text => text.length === 42
  ? el("code", {title: text}, `${text.slice(0, 6)}…${text.slice(-4)}`)
  : el("span", {}, text);

// Grains (1e-9 token; decimal text, BigInt or a safe integer) as tokens, exactly.
function tokens(grains) {
  const text = String(grains), digits = text.replace("-", "").padStart(10, "0");
  const whole = digits.slice(0, -9).replace(/\B(?=(\d{3})+$)/g, ","), rest = digits.slice(-9).replace(/0+$/, "");
  return (text.startsWith("-") ? "−" : "") + whole + (rest && `.${rest}`);
}
const least = values => values.reduce((a, b) => Math.min(a, b), Infinity);
const most = values => values.reduce((a, b) => Math.max(a, b), -Infinity);
const decimals = value => value == null ? "–" : value.toFixed(3);
const figure = value => value && Math.abs(value) < .01 ? value.toExponential(1) : decimals(value);
const file = sequence => `#${sequence}`;

function ago(time, now) {
  if (time == null) return "never";
  const seconds = Math.max(0, Math.round(now - time));
  if (seconds < 90) return `${seconds} s`;
  return seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3600)} h`;
}
