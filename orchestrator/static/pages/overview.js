// The run at a glance: reward, throughput, nodes on a map of states, money.
import {el} from "../lib/dom.js";
import {chart} from "../lib/charts.js";
import {compact, count, duration, figure, share, tokens} from "../lib/format.js";
import {compared} from "../lib/health.js";
import {nodeMap, STATES} from "../lib/nodemap.js";
import {card, facts, heading, lead, pill, stepLink, table, tiles, to, when, words} from "../lib/parts.js";
import {link} from "../lib/route.js";
import {filesChart, rewardChart, throughputChart} from "./series.js";

export const OUTCOMES = ["accepted", "pending", "rejected", "malformed", "unavailable", "void", "canary", "late"];
const REFUSED = OUTCOMES.slice(2);

export const overviewPage = {
  title: () => "Overview",
  async load(source) {
    const [overview, history] = await Promise.all([source.get("overview"), source.get("history")]);
    return {overview, history};
  },
  view({overview, history}, {source}) {
    return [
      heading(words(overview.name), pill(overview.phase)),
      lead(words(overview.task), " · ", words(overview.model), ` · pool ${overview.pool} · ${overview.chain.network}, block `
        + count(overview.chain.head)),
      source.run?.summary ? verdictOnRun(source.run.summary) : null,
      headline(overview),
      el("div", {class: "grid"},
        card("Reward by policy step", {wide: true, note: "Line: mean over the files that a step was trained on. Dots: "
          + "held-out problems, the same each time."}, chart(rewardChart(history))),
        nodesCard(overview, source),
        heldCard(overview),
        card("Accepted tokens per second", {note: "By the policy step they were generated with."},
          chart(throughputChart(history))),
        card("Files by policy step", {note: "By the step they were generated with."}, chart(filesChart(history))),
        moneyCard(overview),
        waitsCard(overview)),
    ];
  },
};

export const refusedFiles = counts => REFUSED.reduce((sum, name) => sum + (counts[name] ?? 0), 0);

function headline(overview) {
  const {counts, throughput} = overview, refused = refusedFiles(counts);
  const decided = (counts.accepted ?? 0) + refused;
  return tiles([
    ["Policy step", [count(overview.step), el("small", {}, ` of ${count(overview.steps)}`)]],
    ["Reward", figure(overview.reward), {sub: overview.heldout == null ? "trained on"
      : `held out ${figure(overview.heldout)}`}],
    ["Files accepted", compact(counts.accepted ?? 0), {sub: `${count(counts.pending ?? 0)} awaiting a verdict`}],
    ["Files not accepted", compact(refused), {sub: decided ? `${share(refused / decided)} of those decided` : "none decided"}],
    ["Tokens verified", compact(overview.tokens), {sub: `${compact(throughput.tokens)} in ${duration(throughput.seconds)}`}],
    ["In flight", count(overview.in_flight.leased + overview.in_flight.pending + overview.in_flight.accepted),
      {sub: `${count(overview.in_flight.leased)} being made`}],
  ]);
}

function nodesCard(overview, source) {
  const open = async place => {
    const {rows} = await source.get("nodes", {after: place, limit: 1});
    if (rows.length) location.hash = link("nodes", rows[0].address);
  };
  const legend = STATES.filter(([, name]) => overview.nodes[name]).map(([, name, tone]) =>
    el("a", {href: link("nodes", null, {state: name})}, el("i", {class: `swatch ${tone}`}), name, " ",
      el("b", {}, count(overview.nodes[name]))));
  return card("Nodes", {action: el("a", {href: link("nodes")}, "All nodes")},
    overview.map ? nodeMap(overview.map, open) : el("p", {class: "empty"}, "No node has joined yet."),
    el("div", {class: "legend"}, ...legend));
}

function heldCard({held, step}) {
  if (!held?.length) return null;
  return card("Who has which step", {note: "The newest whose weights each says it has; checked by nobody."},
    table("Weights by policy step", [["Step", {main: true}], ["Nodes", {n: true}], ["Validators", {n: true}],
      ["Relays", {n: true}], ["Behind", {n: true}]],
    held.map(one => [stepLink(one.step), count(one.nodes), count(one.validators), count(one.relays),
      count(Math.max(0, step - one.step))])));
}

function moneyCard(overview) {
  const {escrow, terms} = overview, check = compared(overview);
  if (!escrow) return card("Money", {}, el("p", {class: "empty"}, "The pool is not on chain."));
  return card("Money", {action: el("a", {href: link("money")}, "Every account")}, facts([
    ["Deposited", `${tokens(escrow.funded)} tokens`],
    ["Paid to nodes", tokens(escrow.claimed)],
    ["Earned, not claimed", tokens(escrow.unpaid)],
    ["Reserved for open files", tokens(escrow.reserved)],
    ["Free", tokens(escrow.free)],
    ["Taken from stakes", tokens(overview.slashed)],
    ["Pay", terms && `${tokens(BigInt(terms.rate) * 1_000_000n)} per million tokens`],
    ["Ledger", pill(check.word, check.tone)],
  ]));
}

function waitsCard({waits, time}) {
  return card("Waiting for", {wide: true}, table("Who waits for what", [["Who", {main: true}], ["For"], ["Since", {n: true}]],
    waits.map(one => [words(one.who, 42), words(one.what), when(one.since, time)]), "Nobody waits for anything."));
}

// The end of a finished run in a report: what it showed.
function verdictOnRun(summary) {
  const {submissions, agreement, safeguards} = summary, tone = good => ({tone: good ? "good" : "bad"});
  const list = [
    ["Held-out reward", `${figure(summary.reward_first)} → ${figure(summary.reward_last)}`,
      {sub: `in ${summary.steps} steps, ${duration(summary.seconds)}, seed ${summary.seed}`}],
    ["Files accepted, refused", `${count(submissions.accepted)}, ${count(submissions.rejected)}`],
    ["Honest files rejected", count(summary.honest_rejected), tone(!summary.honest_rejected)],
    ["Ledger matches chain", summary.ledger_matches_chain ? "yes" : "not confirmed",
      {tone: summary.ledger_matches_chain ? "good" : "warn"}],
    ["Escrow balanced", summary.escrow_balanced ? "yes" : "not confirmed", {tone: summary.escrow_balanced ? "good" : "warn"}],
    ["Trainer idle", share(summary.trainer_idle_share)]];
  if (summary.weights_overlap != null) list.push(["Weights fetched beside the making", share(summary.weights_overlap)]);
  if (summary.swap_pause != null) list.push(["Longest stop for new weights", `${figure(summary.swap_pause)} s`,
    {sub: "besides the engine's reload"}]);
  if (agreement) list.push(["Verdicts that differ", `${agreement.differing.length} of ${agreement.compared}`,
    tone(!agreement.differing.length)]);
  if (safeguards) list.push(["Files attested before their draw", count(safeguards.attested)],
    ["Files never uploaded", count(safeguards.late.length), {sub: "void and fined"}],
    ["Seats that opted in", `${safeguards.opted_in} of ${safeguards.needed}`],
    ["Silent committees replaced", count(safeguards.silent.length)],
    ["Canaries disputed in vain", count(safeguards.dodged.length)]);
  const cheaters = summary.cheaters.map(one => [to("node", one.address, el("code", {}, one.address.slice(0, 10))),
    words(one.reason ?? "–"), pill(one.slashed ? "slashed" : "not slashed", one.slashed ? "good" : "bad"),
    tokens(one.slashed_grains), pill(one.ejected ? "ejected" : "not ejected", one.ejected ? "good" : "bad"),
    count(one.submissions), count(one.rollouts_trained)]);
  return [card("What this run showed", {wide: true}, tiles(list)), cheaters.length ? card("Cheaters", {wide: true},
    table("Cheaters", [["Node", {main: true}], ["Reason"], ["Stake"], ["Tokens", {n: true}], ["Standing"],
      ["Files", {n: true}], ["Rollouts trained", {n: true}]], cheaters)) : null];
}
