// Disputes, cases against nodes, opened canaries, penalties.
import {count, tokens} from "../lib/format.js";
import {address, card, code, fileLink, heading, lead, pager, pill, table, when, whole, words} from "../lib/parts.js";
import {link} from "../lib/route.js";
import {el} from "../lib/dom.js";

export const disputesPage = {
  title: () => "Disputes",
  async load(source, {query: {after}}) {
    const [disputes, cases, canaries, slashes] = await Promise.all([source.get("disputes"), source.get("cases"),
      source.get("canaries"), source.get("slashes", {after})]);
    return {disputes, cases, canaries, slashes};
  },
  view({disputes, cases, canaries, slashes}, {route, now}) {
    return [
      heading("Disputes and penalties"),
      lead("Anybody may dispute an outcome before a larger jury, or accuse a node by what its files say together. Owners plant files whose answer is known, to see who checks."),
      card("Disputes", {wide: true}, table("Disputes", [["File", {main: true}], ["By"], ["Outcome"], ["State"], ["Reward",
        {n: true}], ["Opened"]], disputes.rows.map(one => [disputeLink(one.sequence), el("code", {title: one.disputer},
        one.disputer.slice(0, 10)), pill(one.outcome), one.resolved ? one.overturned ? pill("overturned", "warn")
        : pill("upheld", "good") : pill("open", ""), tokens(one.reward), when(one.time, now)]), "Nobody has disputed a file.")),
      card("Cases against nodes", {wide: true, note: "Anybody can judge a case again: muster verify challenge NUMBER."},
        table("Cases against nodes", [["Case", {main: true}], ["Accused"], ["By"], ["Files"], ["State"], ["Votes"],
          ["Taken", {n: true}], ["Opened"]], cases.rows.map(one => [count(one.case), address("node", one.node),
          code(one.accuser), one.sequences.flatMap(sequence => [fileLink(sequence), " "]), [pill(one.outcome,
            CASE_TONES[one.outcome]), one.reason ? [" ", pill(one.reason)] : null], caseVotes(one), tokens(one.slashed),
          when(one.time, now)]), "No node was accused.")),
      card("Canaries", {wide: true}, table("Canaries", [["File", {main: true}], ["Accused seats"], ["Reason"], ["State"],
        ["Taken"], ["Opened"]], canaries.rows.map(one => [fileLink(one.sequence), one.accused.join(", "), words(one.reason),
        one.concluded ? pill(one.upheld ? "upheld" : "not upheld", one.upheld ? "good" : "warn") : pill("open", ""),
        Object.entries(one.slashed).map(([seat, amount]) => `seat ${seat}: ${tokens(amount)}`).join(", "),
        when(one.time, now)]), "No canary was opened.")),
      card("Penalties, newest first", {wide: true}, slashTable(slashes.rows, now), pager(slashes, route)),
    ];
  },
};

const CASE_TONES = {open: "", upheld: "good", refuted: "warn", dismissed: "", lapsed: ""};
const caseVotes = ({votes, drawn, committed, jurors}) => {
  const opened = Object.entries(votes).map(([vote, seats]) => `${seats} ${vote}`).join(", ");
  return opened || (drawn ? `${committed} of ${jurors} voted, none opened` : "jury not drawn");
};

const disputeLink = sequence => el("a", {href: link("disputes", sequence)}, `#${sequence}`);

export const slashTable = (rows, now) => table("Penalties", [["Who", {main: true}], ["Reason"], ["File"], ["Tokens",
  {n: true}], ["Block", {n: true}], ["When"]], rows.map(one => [one.kind === "node" ? address("node", one.who)
  : `seat ${one.who}`, pill(one.reason, "bad"), one.sequence < 0 ? "–" : fileLink(one.sequence), tokens(one.amount),
count(one.block), when(one.time, now)]), "Nobody was slashed.");

// One dispute: who says what, the first outcome, the juries, what it cost and paid.
export const disputePage = {
  title: ({id}) => `Dispute of file ${id}`,
  load: (source, {id}) => source.get(`submissions/${id}`),
  view(file, {now}) {
    const found = file.dispute;
    if (!found) return [heading(`Dispute of file ${file.sequence}`), el("p", {class: "empty"}, "This file is not disputed, "
      + "or the report does not hold its dispute."), el("p", {}, fileLink(file.sequence))];
    const juries = file.panels.filter(one => one.kind === "jury"), first = file.panels.filter(one => one.kind !== "jury").at(-1);
    return [
      heading(`Dispute of file ${file.sequence}`, found.resolved ? pill(found.overturned ? "overturned" : "upheld",
        found.overturned ? "warn" : "good") : pill("open", "")),
      lead("Opened ", when(found.time, now), " by ", whole(found.disputer), "."),
      el("div", {class: "grid"},
        card("How it went", {}, el("ol", {class: "story"},
          el("li", {}, "The committee said ", first?.outcome ? pill(first.outcome) : "nothing yet", "."),
          ...juries.map(one => el("li", {}, `A jury of ${one.members.length} `, one.outcome ? ["said ", pill(one.outcome)]
            : "is still voting", ".")),
          found.resolved ? el("li", {}, "The outcome stands as ", pill(found.outcome), found.reward !== "0"
            ? `; the disputer was paid ${tokens(found.reward)}.` : ".") : null)),
        card("File", {}, el("p", {}, fileLink(file.sequence), " of ", address("node", file.node))),
        ...juries.map(one => card(`Jury of trial ${one.number}`, {}, table("Votes of the jury", [["Seat", {main: true}],
          ["Owner"], ["Vote"]], one.members.map(member => [count(member.seat), address("validator", member.owner),
          member.code ? pill(member.code) : member.committed ? "committed" : "none"]))))),
    ];
  },
};
