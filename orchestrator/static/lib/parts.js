// What pages are built of: cards, tiles, pills, tables with pages, links to everything that has a page.
import {el} from "./dom.js";
import {clipped, clock, count, ago, short} from "./format.js";
import {link} from "./route.js";

const TONES = new Map(Object.entries({healthy: "good", accepted: "good", accept: "good", finished: "good", training: "good",
  open: "good", unhealthy: "warn", waiting: "warn", unsure: "warn", late: "warn", void: "warn", unavailable: "warn",
  paused: "warn", understaffed: "warn", dead: "bad", ejected: "bad", rejected: "bad", malformed: "bad", canary: "bad"}));
export const toneOf = text => TONES.get(text) ?? (text.startsWith("reject") ? "bad" : "");
export const pill = (text, tone = toneOf(text)) => el("span", {class: `pill ${tone}`}, text);

// A stranger's words: their direction stays theirs, and their length is limited.
export const words = (text, most = 80) =>
  text ? el("bdi", {class: "words", title: text.length > most ? clipped(text, 500) : null}, clipped(text, most)) : "–";

export const card = (title, {note, wide, id, action} = {}, ...children) =>
  el("section", {class: `card ${wide ? "wide" : ""}`, id},
    el("div", {class: "card-head"}, el("h2", {}, title), action), ...children, note && el("p", {class: "note"}, note));

// entries: [label, value (text or nodes), {tone, sub, href}].
export const tiles = entries => el("dl", {class: "tiles"}, ...entries.map(([label, value, {tone, sub} = {}]) =>
  el("div", {class: "tile"}, el("dt", {}, label), el("dd", {class: tone}, value), sub && el("dd", {class: "sub"}, sub))));

// entries: [label, value]; those without a value are left out.
export const facts = entries => el("dl", {class: "facts"}, ...entries.filter(([, value]) => value != null && value !== "")
  .map(([label, value]) => el("div", {}, el("dt", {}, label), el("dd", {}, value))));

const PAGES = {node: "nodes", validator: "validators", submission: "files", step: "steps", dispute: "disputes"};
export const to = (kind, id, text, title = null) => el("a", {href: link(PAGES[kind] ?? kind, id), title}, text);
export const address = (kind, text) => to(kind, text, el("code", {}, short(text)), text);
export const code = text => el("code", {title: text}, short(text));
export const whole = text => el("code", {class: "whole"}, text);
export const fileLink = sequence => to("submission", sequence, `#${sequence}`);
export const stepLink = step => step == null ? "–" : to("step", step, String(step));
export const when = (time, now) => el("time", {title: clock(time)}, ago(time, now));

// A transaction, linked to the network's explorer where it has one.
export function transaction(tx, chain) {
  if (!tx) return null;
  const hash = tx.startsWith("0x") ? tx : `0x${tx}`;
  const known = /^https:\/\/[a-z0-9.-]+$/.test(chain?.explorer ?? "");
  return known ? el("a", {href: `${chain.explorer}/tx/${hash}`, rel: "noopener noreferrer"}, whole(hash)) : whole(hash);
}

// columns: [title, {n: right-aligned figures, main: what names the row}]; rows: arrays of cells.
export function table(caption, columns, rows, empty = "Nothing yet.") {
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
export function pager({rows, total, next}, route) {
  const first = route.query.after != null;
  if (!first && next == null) return total == null || !rows.length ? null : el("p", {class: "note"}, `${count(total)} in all`);
  return el("nav", {class: "pager", "aria-label": "Pages of this list"},
    first ? el("a", {href: link(route.name, route.id, {...route.query, after: null})}, "First page") : null,
    next != null ? el("a", {href: link(route.name, route.id, {...route.query, after: next})}, "Next page") : null,
    total != null && el("span", {class: "note"}, `${count(total)} in all`));
}

// A row of links that narrow a list: choices are [label, value].
export const choices = (label, name, options, route) => el("nav", {class: "choices", "aria-label": label},
  ...options.map(([text, value]) => {
    const chosen = (route.query[name] ?? "") === value;
    return el("a", {href: link(route.name, route.id, {...route.query, [name]: value, after: null}),
      "aria-current": chosen ? "true" : null}, text);
  }));

export const heading = (title, ...beside) =>
  el("div", {class: "heading"}, el("h1", {tabindex: -1}, title), ...beside);
export const lead = (...children) => el("p", {class: "lead"}, ...children);
