// The pool's nodes.
import {count, plural, tokens} from "../lib/format.js";
import {address, card, choices, heading, lead, pager, pill, table, when, words} from "../lib/parts.js";

const NODE_STATES = ["healthy", "unhealthy", "waiting", "dead", "ejected", "left"];

export const nodesPage = {
  title: () => "Nodes",
  load: (source, {query: {after, state, order, operator}}) => source.get("nodes", {after, state, order, operator}),
  view(list, {route, overview, now}) {
    const all = Object.values(overview?.nodes ?? {}).reduce((sum, number) => sum + number, 0);
    return [
      heading("Nodes"),
      lead(`${plural(all, "node")} ever joined this pool.`, route.query.operator ? ` Shown: those of ${route.query.operator}.`
        : ""),
      choices("State", "state", [["All", ""], ...NODE_STATES.filter(name => overview?.nodes[name])
        .map(name => [`${name} ${count(overview.nodes[name])}`, name])], route),
      choices("Order", "order", [["As they joined", ""], ["Earned", "earned"], ["Slashed", "slashed"]], route),
      card("Nodes", {wide: true}, nodesTable(list.rows, now), pager(list, route)),
    ];
  },
};

export const nodesTable = (rows, now) => table("Nodes", [["Node", {main: true}], ["Name"], ["State"], ["Doing"],
  ["Accepted", {n: true}], ["Rejected", {n: true}], ["Earned", {n: true}], ["Slashed", {n: true}], ["Heartbeat"]],
rows.map(one => [address("node", one.address), words(one.name, 40), pill(one.state),
  one.ejected ? pill(one.ejected, "bad") : words(one.phase, 60), count(one.accepted), count(one.rejected),
  tokens(one.earned), tokens(one.slashed), when(one.last_seen, now)]), "No node of this kind.");
