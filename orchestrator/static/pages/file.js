// One file: its outcome and why, the figures of each check against its threshold, the votes, prompts and completions.
import {el} from "../lib/dom.js";
import {clock, count, figure, plural} from "../lib/format.js";
import {address, card, code, facts, heading, lead, pager, pill, stepLink, table, transaction, when, whole, words}
  from "../lib/parts.js";
import {link} from "../lib/route.js";
import {outcome} from "./files.js";
import {figuresOf, meters} from "./figures.js";

export const filePage = {
  title: ({id}) => `File ${id}`,
  async load(source, {id, query}, renew) {
    const file = await source.get(`submissions/${id}`);
    const votes = file.panels?.flatMap(one => one.members).filter(one => one.verdict).length;
    return {file, verdicts: evidence(source, `submissions/${id}/verdicts`, {}, renew, votes),
      rollouts: evidence(source, `submissions/${id}/rollouts`, {after: query.after}, renew)};
  },
  view({file, verdicts, rollouts}, {route, overview, now}) {
    return [
      heading(`File ${file.sequence}`, outcome(file), file.disputed ? pill("disputed", "warn") : null),
      lead(...inWords(file, now)),
      el("div", {class: "grid"},
        card("On chain", {}, facts([["Node", address("node", file.node)], ["Policy step", stepLink(file.step)],
          ["Number among its node's files", count(file.counter)], ["Output tokens", count(file.units)],
          ["Completions", count(file.rows)], ["Submitted", [when(file.time, now), ` in block ${count(file.block)}`]],
          ["Decided", file.decided && clock(file.decided)], ["Final", file.final && clock(file.final)],
          ["Upload attested", file.attested == null ? null : file.attested ? "yes" : "no"],
          ["Trained in step", stepLink(file.trained)], ["SHA-256", file.sha256 && whole(file.sha256)],
          ["Transaction", transaction(file.tx, overview?.chain)],
          ["Object", file.key && el("a", {href: `v1/objects/${file.key}`}, "Download the file")]])),
        votes(file), dispute(file),
        card("What was measured", {wide: true, note: "From the verdicts that voters published; each is bound to its vote by "
          + "a hash on chain. A bar that reaches the mark at its end is at the threshold."}, checks(verdicts)),
        card("Prompts and completions", {wide: true, note: "Written by the node; shown as text, whatever it says."},
          completions(rollouts), rollouts?.rows ? pager({rows: rollouts.rows, total: rollouts.total, next: rollouts.next}, route)
            : null)),
    ];
  },
};

// What is read from the bucket can take seconds: the page does not wait for it, and reads it once. Null while it is read.
const read = new Map();
function evidence(source, path, asked, renew, version = 0) {
  const name = JSON.stringify([path, asked, version]);
  if (!read.has(name)) {
    read.set(name, null);
    source.get(path, asked).catch(error => ({failed: error.message})).then(found => {
      read.set(name, found);
      renew();
    });
  }
  return read.get(name);
}

// The end of a file in a sentence or two.
function inWords(file, now) {
  if (file.status === "pending") return ["Waiting for its committee's votes, ", when(file.time, now), "."];
  if (file.status === "accepted") return [file.trained == null ? "Accepted and paid; no step has trained on it yet."
    : "Accepted and paid; trained on in step ", file.trained == null ? null : stepLink(file.trained),
  file.trained == null ? null : "."];
  const told = {rejected: "The committee found a fraud, so the node's stake is taken and the node ejected once it is final.",
    malformed: "The file is not what a worker writes. It earns nothing.", void: "No committee could decide it. Nobody is to "
      + "blame and nobody is paid.", late: "Its upload was not attested in time. It earns nothing.",
    unavailable: "The committee could not fetch it. An upload receipt keeps its pay.",
    canary: "A planted test file: whoever accepted it was not checking."};
  return [`${file.reason || file.status}. ${told[file.status] ?? ""}`];
}

function votes({panels}) {
  if (!panels) return null;
  if (!panels.length) return card("Votes", {}, el("p", {class: "empty"}, "No committee has been drawn yet."));
  return card("Votes", {}, ...panels.flatMap(one => [
    el("h3", {}, one.kind === "jury" ? `Jury of trial ${one.number}` : one.number ? `Committee, round ${one.number + 1}`
      : "Committee", " ", one.outcome ? pill(one.outcome) : pill("open", "")),
    table(`Votes of the ${one.kind}`, [["Seat", {main: true}], ["Owner"], ["Vote"], ["Verdict"]], one.members.map(member =>
      [`${member.seat}`, address("validator", member.owner), member.code ? pill(member.code)
        : member.committed ? "committed" : "none", member.verdict ? el("a", {href: `v1/objects/${member.verdict}`},
        code(member.verdict.slice(9, 73))) : null]))]));
}

function dispute({dispute: found, canary, slashes}) {
  if (!found && !canary && !slashes?.length) return null;
  return card("Dispute and penalties", {}, facts([
    ["Disputed by", found && whole(found.disputer)], ["Dispute", found && found.outcome],
    ["Outcome overturned", found && (found.resolved ? (found.overturned ? "yes" : "no") : "not decided yet")],
    ["Canary", canary && `${canary.reason}; ${canary.concluded ? canary.upheld ? "upheld" : "not upheld" : "open"}`],
    ["Accused seats", canary && canary.accused.join(", ")],
    ["Penalties", slashes?.length ? plural(slashes.length, "penalty", "penalties") : null]]),
  el("a", {href: link("disputes")}, "All disputes and penalties"));
}

const READING = "Reading the pool's bucket …";

function checks(told) {
  if (!told) return el("p", {class: "empty"}, READING);
  if (told.failed) return el("p", {class: "empty"}, told.failed);
  if (!told.verdicts.length) return el("p", {class: "empty"}, "No vote has been revealed yet.");
  return told.verdicts.map(one => el("details", {class: "verdict", open: one === told.verdicts[0]},
    el("summary", {}, `Seat ${one.seat} `, one.problem ? pill("no document", "warn") : pill(one.code),
      el("span", {class: "dim"}, one.problem || ` ${Object.values(one.engine).join(" · ")} · ${plural(one.audited, "row")} `
        + "prefilled")),
    el("div", {class: "checks"}, ...one.findings.map(finding => el("article", {class: "check"},
      el("h3", {}, finding.check, " ", pill(finding.code)), finding.note ? el("p", {}, words(finding.note, 300)) : null,
      meters(figuresOf(finding.figures).judged),
      facts(figuresOf(finding.figures).others.map(([name, value]) => [name, words(shown(value), 120)])))))));
}

const shown = value => Array.isArray(value) ? value.map(figure).join(", ") || "none" : figure(value);

function completions(told) {
  if (!told) return el("p", {class: "empty"}, READING);
  if (told.failed || told.problem) return el("p", {class: "empty"}, told.failed || told.problem);
  return el("div", {class: "rollouts"}, ...told.rows.map(row => el("article", {class: "rollout"},
    el("h3", {}, `Problem ${row.problem + 1}, try ${row.sample + 1} `, pill(`reward ${figure(row.reward)}`,
      row.task_reward > 0 ? "good" : "")),
    el("p", {class: "note"}, `${plural(row.prompt_tokens, "prompt token")}, ${plural(row.output_tokens, "output token")}`
      + `${row.target_length ? `, ${row.target_length} asked for` : ""}; ${row.stopped ? "ended by itself" : "cut off at the limit"}`
      + `${row.length_penalty ? `; length penalty ${figure(row.length_penalty)}` : ""}${row.text ? "" : "; token ids"}`),
    el("pre", {class: "prompt", dir: "auto", tabindex: 0, role: "region", "aria-label": `Prompt of row ${row.row}`},
      row.prompt), el("pre", {dir: "auto", tabindex: 0, role: "region", "aria-label": `Completion of row ${row.row}`},
      row.completion))));
}
