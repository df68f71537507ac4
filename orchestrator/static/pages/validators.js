// Owners of validators' seats.
import {count, tokens} from "../lib/format.js";
import {address, card, heading, lead, pager, pill, table, when, words} from "../lib/parts.js";

export const validatorsPage = {
  title: () => "Validators",
  load: (source, {query: {after}}) => source.get("validators", {after}),
  view(list, {route, now}) {
    return [
      heading("Validators"),
      lead("They bond seats, are drawn by lot to judge files, vote in secret, and lose part of their bond for voting wrongly."),
      card("Validators", {wide: true}, table("Validators", [["Owner", {main: true}], ["Name"], ["State"], ["Seats", {n: true}],
        ["Files voted on", {n: true}], ["Fees", {n: true}], ["Penalties", {n: true}], ["Heartbeat"]],
      list.rows.map(one => [address("validator", one.address), words(one.name, 40), pill(one.state), count(one.seats.length),
        count(one.votes), tokens(one.fees), tokens(one.penalised), when(one.last_seen, now)]), "No seat is bonded."),
      pager(list, route)),
    ];
  },
};
