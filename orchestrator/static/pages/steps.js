// Policy steps, newest first.
import {compact, count, figure} from "../lib/format.js";
import {card, heading, lead, pager, stepLink, table, when} from "../lib/parts.js";
import {refusedFiles} from "./overview.js";

export const stepsPage = {
  title: () => "Policy steps",
  load: (source, {query}) => source.get("policy-steps", {after: query.after}),
  view(list, {route, now}) {
    return [
      heading("Policy steps"),
      lead("Each is a version of the model's weights, published on chain; files are generated with it and judged against it."),
      card("All steps", {wide: true}, table("Policy steps", [["Step", {main: true}], ["Published"], ["Reward", {n: true}],
        ["Held out", {n: true}], ["Accepted", {n: true}], ["Not accepted", {n: true}], ["Pending", {n: true}],
        ["Tokens", {n: true}]],
      list.rows.map(one => [stepLink(one.step), when(one.time, now), figure(one.reward), figure(one.heldout),
        count(one.files.accepted ?? 0), count(refusedFiles(one.files)), count(one.files.pending ?? 0), compact(one.tokens)]),
      "No step has been published yet."), pager(list, route)),
    ];
  },
};
