// One owner of seats: bonds, votes, fees, penalties.
import {el} from "../lib/dom.js";
import {count, tokens} from "../lib/format.js";
import {card, code, facts, fileLink, heading, lead, pill, table, tiles, toneOf, when, whole, words} from "../lib/parts.js";
import {slashTable} from "./disputes.js";

export const validatorPage = {
  title: ({id}) => `Validator ${id.slice(0, 10)}`,
  load: (source, {id}) => source.get(`validators/${id}`),
  view(one, {now}) {
    const bonded = one.seats.filter(seat => seat.active).reduce((sum, seat) => sum + BigInt(seat.bond), 0n);
    return [
      heading(one.name ? words(one.name) : "Validator", pill(one.state)),
      lead(whole(one.address)),
      tiles([["Bonded", tokens(bonded), {sub: `${count(one.seats.length)} seats`}], ["Files voted on", count(one.votes)],
        ["Fees earned", tokens(one.fees)], ["Penalties", tokens(one.penalised),
          {tone: one.penalised === "0" ? null : "bad"}]]),
      el("div", {class: "grid"},
        card("What it says of itself", {note: "From its newest heartbeat; checked by nobody."}, facts([
          ["Heard", when(one.last_seen, now)], ["Doing", words(one.phase)], ["Engine", words(one.engine)],
          ["Version", words(one.version)]])),
        card("Seats", {}, table("Seats", [["Seat", {main: true}], ["Voter"], ["Bond", {n: true}], ["State"]],
          one.seats.map(seat => [count(seat.seat), code(seat.voter), tokens(seat.bond),
            pill(seat.active ? "active" : "left", seat.active ? "good" : "")]))),
        one.recent ? card("Newest votes", {wide: true}, table("Newest votes", [["File", {main: true}], ["Seat", {n: true}],
          ["Its vote"], ["The outcome"], ["Submitted"]], one.recent.map(vote => [fileLink(vote.sequence), count(vote.seat),
          pill(vote.code), pill(vote.reason || vote.status, toneOf(vote.status)), when(vote.time, now)]),
        "It has not revealed a vote yet.")) : null,
        one.slashes ? card("Penalties", {wide: true}, slashTable(one.slashes, now)) : null),
    ];
  },
};
