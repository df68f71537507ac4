// What was looked for.
import {el} from "../lib/dom.js";
import {card, heading, lead, words} from "../lib/parts.js";
import {link} from "../lib/route.js";

const PLACES = {node: id => link("nodes", id), validator: id => link("validators", id), submission: id => link("files", id),
  step: id => link("steps", id), operator: id => link("nodes", null, {operator: id}), pool: () => link("pools")};

export const searchPage = {
  title: () => "Search",
  async load(source, {query: {q = ""}}) {
    const found = q.trim() ? await source.get("search", {q: q.slice(0, 80)}) : {query: "", hits: []};
    return found;
  },
  view({query, hits}) {
    return [
      heading("Search"),
      lead("By the beginning of an address or hash (four digits at least), or by the number of a file, step, seat or pool."),
      card(query ? `Found for ${query.slice(0, 60)}` : "Nothing asked", {wide: true}, hits.length ? el("ul", {class: "hits"},
        ...hits.map(hit => el("li", {}, el("a", {href: PLACES[hit.kind]?.(hit.id) ?? "#/"}, words(hit.id, 66)), " ",
          el("span", {class: "dim"}, words(hit.label, 60))))) : el("p", {class: "empty"}, query ? "Nothing has that name."
        : "Type into the box above.")),
    ];
  },
};
