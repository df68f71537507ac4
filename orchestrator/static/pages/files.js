// Submitted files, newest first.
import {count} from "../lib/format.js";
import {address, card, choices, fileLink, heading, lead, pager, pill, stepLink, table, toneOf, when} from "../lib/parts.js";
import {OUTCOMES} from "./overview.js";

export const filesPage = {
  title: () => "Files",
  load: (source, {query: {after, status, step, node}}) => source.get("submissions", {after, status, step, node}),
  view(list, {route, overview, now}) {
    const {step, node} = route.query;
    return [
      heading("Files"),
      lead("Each holds the completions of one work slot. A committee drawn by lot judges it; its outcome can be disputed.",
        step != null ? ` Shown: policy step ${step}.` : "", node ? ` Shown: node ${node}.` : ""),
      choices("Outcome", "status", [["All", ""], ...OUTCOMES.filter(name => overview?.counts[name])
        .map(name => [`${name} ${count(overview.counts[name])}`, name])], route),
      card("Files", {wide: true}, filesTable(list.rows, now), pager(list, route)),
    ];
  },
};

export const outcome = one => pill(one.status === "accepted" || !one.reason ? one.status : one.reason, toneOf(one.status));

export const filesTable = (rows, now) => table("Files", [["File", {main: true}], ["Node"], ["Step", {n: true}],
  ["Tokens", {n: true}], ["Outcome"], ["Trained in", {n: true}], ["Submitted"]],
rows.map(one => [fileLink(one.sequence), address("node", one.node), stepLink(one.step), count(one.units),
  [outcome(one), one.disputed ? [" ", pill("disputed", "warn")] : null], stepLink(one.trained), when(one.time, now)]),
"No file of this kind.");
