// Every pool of these contracts.
import {el} from "../lib/dom.js";
import {count, tokens} from "../lib/format.js";
import {card, code, heading, lead, pager, pill, table, words} from "../lib/parts.js";

export const poolsPage = {
  title: () => "Pools",
  load: (source, {query: {after}}) => source.get("pools", {after}),
  view(list, {route}) {
    return [
      heading("Pools"),
      lead("Every pool on these contracts, newest first. Services are as their owners announce them: nobody has checked them."),
      card("Pools", {wide: true}, table("Pools", [["Pool", {main: true}], ["Status"], ["Owner"], ["Pay per million tokens",
        {n: true}], ["Stake", {n: true}], ["Nodes", {n: true}], ["Files", {n: true}], ["Steps", {n: true}], ["Held", {n: true}],
      ["Service"]], list.rows.map(one => [one.here ? el("b", {}, `${one.pool}, this one`) : String(one.pool), pill(one.status),
        code(one.owner), tokens(BigInt(one.terms.rate) * 1_000_000n), tokens(one.terms.stake), count(one.nodes),
        count(one.submissions), count(one.steps), tokens(one.held), service(one.url)]), "There is no pool."), pager(list, route)),
    ];
  },
};

// A link only to what is plainly a web address; whatever else an owner wrote stays text.
function service(url) {
  return /^https?:\/\/[A-Za-z0-9.:[\]-]+(\/[A-Za-z0-9._~/-]*)?$/.test(url) && url.length <= 200
    ? el("a", {href: url, rel: "noopener noreferrer"}, words(url, 60)) : words(url, 60);
}
