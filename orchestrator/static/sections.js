// What each part of the page shows: functions of the run's record and, in a report, its summary (null while it is live).
// They return nodes, or null where there is nothing to show.
const STATUS_KINDS = [["accepted", "green"], ["pending", "grey"], ["rejected", "red"], ["malformed", "amber"],
  ["unavailable", "violet"], ["void", "blue"], ["canary", "violet"], ["late", "grey"]];
const TIME_KINDS = [["generate", "blue"], ["submit", "violet"], ["check and accept", "green"], ["train", "amber"]];
const note = text => el("p", {class: "note"}, text);

function liveTiles(record) {
  const {counts, in_flight: flight} = record, newest = record.rewards.filter(one => one.reward != null).at(-1);
  return [["phase", record.phase], ["policy step", `${record.step ?? "–"} / ${record.steps}`],
    ["reward", decimals(newest?.reward)], [`files accepted, ${counts.pending} pending`, counts.accepted],
    ["files not accepted", counts.rejected + counts.malformed + counts.unavailable + counts.void + counts.canary
      + counts.late],
    ["files in flight", flight.leased + flight.pending + flight.accepted]];
}

function reportTiles(summary) {
  const {submissions, agreement, safeguards, sites} = summary;
  const share = value => value == null ? "–" : `${Math.round(value * 100)}%`;
  const good = value => value ? "good" : "bad", word = value => value ? "yes" : "no";
  const list = [["held-out reward", `${decimals(summary.reward_first)} → ${decimals(summary.reward_last)}`],
    ["files accepted / refused", `${submissions.accepted} / ${submissions.rejected}`],
    ["tokens verified", summary.tokens_verified.toLocaleString("en")],
    ["trainer idle", share(summary.trainer_idle_share)],
    ["trainer idle after the first step", share(summary.trainer_idle_running)],
    ["policy steps", summary.steps],
    ["ledger matches chain", word(summary.ledger_matches_chain), good(summary.ledger_matches_chain)],
    ["escrow balanced", word(summary.escrow_balanced), good(summary.escrow_balanced)],
    ["honest files rejected", summary.honest_rejected, good(!summary.honest_rejected)]];
  if (agreement)
    list.push(["verdicts that differ, of files judged twice", `${agreement.differing.length} of ${agreement.compared}`,
      good(!agreement.differing.length)]);
  if (safeguards)
    list.push(["files attested before their draw", safeguards.attested],
      ["files never uploaded: void and fined", safeguards.late.length],
      ["seats that opted into the pool", `${safeguards.opted_in} of ${safeguards.needed} needed`],
      ["silent committees fined and replaced", safeguards.silent.length],
      ["canaries disputed in vain by a lazy seat", safeguards.dodged.length]);
  if (sites)
    list.push(["outer steps of several sites", sites.outer_steps],
      ["each file trained on by one site, once", word(sites.used_once), good(sites.used_once)],
      ...sites.sites.map(one => [`files of ${one.name}${one.killed.length ? `, killed in step ${one.killed}` : ""}`,
        one.files]));
  return list;
}

const tiles = (record, summary) => (summary ? reportTiles(summary) : liveTiles(record)).map(([text, value, tone]) =>
  el("div", {class: "tile"}, el("b", {class: tone}, value), el("span", {}, text)));

const SET_KINDS = ["green", "violet", "amber", "red", "grey"];
const setNames = ({rewards}) => [...new Set(rewards.flatMap(one => one.sets.map(set => set.name)))];

function rewards(record, summary, width) {
  const last = Math.max(summary ? summary.steps : record.steps, most(record.rewards.map(one => one.step)));
  const trained = record.rewards.filter(one => one.reward != null).map(one => [one.step, one.reward]);
  const measured = name => record.rewards.flatMap(one => one.sets.filter(set => set.name === name)
    .map(set => [one.step, set.average]));
  const series = [{label: "trained on", kind: "blue", points: trained, joined: true},
    ...setNames(record).map((name, i) => ({label: `held out: ${name}`, kind: SET_KINDS[i % SET_KINDS.length],
      points: measured(name)}))];
  return curves("Task reward per policy step", series, last, width);
}

function evaluations({rewards}) {
  const rows = rewards.flatMap(({step, sets}) => sets.map(set => [step, set.name, `${set.problems} × ${set.samples}`,
    `${decimals(set.average)} ± ${decimals(set.error)}`,
    Object.entries(set.passed).map(([k, share]) => `pass@${k} ${decimals(share)}`).join(" · "), set.length.toFixed(1)]));
  return rows.length ? table([["step", "n"], ["set"], ["problems × tries", "n"], ["average", "n"], ["solved", "wrap"],
    ["tokens", "n"]], rows.reverse(), "") : null;
}

// [title, [metric of a step's report, what it is], …]; those that nobody reported are left out.
const TRAINING = [["Entropy (nats)", ["entropy", "entropy"]],
  ["Gradient norm", ["grad_norm", "before clipping"]],
  ["Clipped tokens (share)", ["clip_low", "lower bound"], ["clip_high", "upper bound"]],
  ["Mismatch and movement (KL)", ["mismatch", "workers to trainer"], ["kl", "within the step"]],
  ["Length", ["length_error", "mean distance from target"], ["output_length_mean", "mean output tokens"]],
  ["Groups without signal (share)", ["dropped_share", "dropped"]],
  ["Staleness (policy steps)", ["staleness_mean", "mean over files"]],
  ["Trainer waiting (share)", ["idle_share", "waiting"], ["mfu", "model FLOPs utilisation"]],
  ["Waiting (seconds) for", ["idle_seconds/starting", "a first file"], ["idle_seconds/generating", "files"],
    ["idle_seconds/judging", "verdicts"], ["idle_seconds/confirming", "blocks"], ["idle_seconds/fetching", "the bucket"]],
  ["Tokens per second", ["tokens_per_second", "trained"]]];
const LINE_KINDS = ["blue", "green", "amber", "violet", "red"];

function training({reports, steps}, summary, width) {
  const told = name => reports.filter(one => one.metrics[name] != null).map(one => [one.step, one.metrics[name]]);
  const last = Math.max(summary ? summary.steps : steps, most(reports.map(one => one.step)));
  const each = Math.max(260, Math.floor(width / 3) - 16), figures = [];
  for (const [title, ...metrics] of TRAINING) {
    const series = metrics.map(([name, label], i) => ({label, kind: LINE_KINDS[i], points: told(name), joined: true}))
      .filter(one => one.points.length);
    if (series.length) figures.push(el("figure", {}, el("figcaption", {}, title),
      ...curves(title, series, last, each, 160, 0)));
  }
  return figures.length ? el("div", {class: "figures"}, ...figures) : null;
}

function waits({waits, time}) {
  return table([["who", "wrap"], ["for", "wrap"], ["since"]],
    waits.map(one => [address(one.who), one.what, ago(one.since, time)]), "nothing");
}

function outcomes({submissions}, _summary, width) {
  const steps = submissions.map(one => one.step), first = least(steps), last = most(steps), columns = [];
  for (let step = first; step <= last; step++) columns.push([step, new Map()]);
  for (const {step, status} of submissions) {
    const counts = columns[step - first][1];
    counts.set(status, (counts.get(status) ?? 0) + 1);
  }
  const seen = STATUS_KINDS.filter(([status]) => columns.some(([, counts]) => counts.has(status)));
  return stacks("Files per policy step", columns, seen, width);
}

// What is known of the making of a policy step: [what, start, end], Unix seconds.
function spans(published, files, report) {
  const sent = files.map(one => one.time);
  const done = files.filter(one => one.status === "accepted" && one.decided).map(one => one.decided);
  const found = [];
  if (sent.length) found.push(["generate", published, least(sent)], ["submit", least(sent), most(sent)]);
  if (done.length) found.push(["check and accept", least(done), most(done)]);
  if (report?.timings.train != null) found.push(["train", published - report.timings.train, published]);
  return found;
}

function steps({published, submissions, reports}, _summary, width) {
  const files = new Map(published.map(({step}) => [step, []])), told = new Map(reports.map(one => [one.step, one]));
  for (const one of submissions) files.get(one.step)?.push(one);
  const rows = published.map(({step, time}) => [step, spans(time, files.get(step), told.get(step))])
    .filter(([, found]) => found.length);
  if (!rows.length) return note("Nothing was made from a published policy step yet.");
  const zero = least(rows.flatMap(([, found]) => found.map(([, start]) => start)));
  const kinds = new Map(TIME_KINDS);
  const bars = rows.flatMap(([step, found], row) => found.map(([what, start, end]) => ({row, kind: kinds.get(what),
    start: start - zero, end: end - zero, title: `step ${step}: ${what}, ${(end - start).toFixed(1)} s`})));
  return timeline("Time line of policy steps", rows.map(([step]) => step), bars, TIME_KINDS, width);
}

function cheaters(_record, summary) {
  if (!summary?.cheaters.length) return null;
  return table([["node"], ["reason"], ["slashed"], ["tokens", "n"], ["ejected"], ["files", "n"],
    ["rollouts trained", "n"]],
    summary.cheaters.map(one => [address(one.address), one.reason, yes(one.slashed), tokens(one.slashed_grains),
      yes(one.ejected), one.submissions, one.rollouts_trained]), "");
}

function nodes({nodes, time}) {
  return table([["node"], ["name", "wrap"], ["state"], ["engine", "wrap"], ["doing", "wrap"], ["accepted", "n"],
    ["rejected", "n"], ["pending", "n"], ["units", "n"], ["earned", "n"], ["claimed", "n"], ["slashed", "n"],
    ["heartbeat"]],
    nodes.map(one => [address(one.address), one.name || "–", pill(one.state), one.engine || "–",
      one.ejected ? pill(one.ejected, "bad") : one.phase || "–", one.accepted, one.rejected, one.pending, one.units,
      tokens(one.earned), tokens(one.claimed), tokens(one.slashed), ago(one.last_seen, time)]), "No node has joined.");
}

function submissions({submissions, time}) {
  const outcome = one => el("span", {}, pill(one.status === "accepted" ? one.status : one.reason || one.status,
    TONES.get(one.status)), one.disputed ? " disputed" : "");
  return table([["#", "n"], ["node"], ["step", "n"], ["units", "n"], ["outcome"], ["trained"], ["age"]],
    submissions.map(one => [one.sequence, address(one.node), one.step, one.units, outcome(one),
      one.trained == null ? "" : `step ${one.trained}`, ago(one.time, time)]), "No file was submitted.");
}

function slashes({slashes, nodes, time}) {
  const rows = slashes.map(one => [one.kind === "node" ? address(one.who) : `seat ${one.who}`, pill(one.reason, "bad"),
    file(one.sequence), tokens(one.amount), one.block, ago(one.time, time)]);
  const slashed = new Set(slashes.map(one => one.who));
  const ejected = nodes.filter(one => one.ejected && !slashed.has(one.address));
  return table([["who"], ["reason"], ["file"], ["tokens", "n"], ["block", "n"], ["age"]],
    [...rows, ...ejected.map(one => [address(one.address), pill(one.ejected, "bad"), "", "", "", ""])],
    "Nobody was slashed.");
}

function validators({validators}) {
  return table([["owner"], ["name", "wrap"], ["state"], ["seats"], ["files voted on", "n"], ["fees", "n"],
    ["penalised", "n"]],
    validators.map(one => [address(one.address), one.name || "–", pill(one.state),
      one.seats.map(seat => seat.seat).join(", "), one.votes, tokens(one.fees), tokens(one.penalised)]),
    "No seat was bonded.");
}

function disputes({disputes, canaries}) {
  const decided = (over, won, word) => !over ? "open" : won ? word : `not ${word}`;
  const lost = slashed =>
    Object.entries(slashed).map(([seat, amount]) => ` · seat ${seat} lost ${tokens(amount)}`).join("");
  const rows = disputes.map(one => ["dispute", file(one.sequence), address(one.disputer), one.outcome,
    decided(one.resolved, one.overturned, "overturned")]);
  rows.push(...canaries.map(one => ["canary", file(one.sequence), `seats ${one.accused.join(", ")}`, one.reason,
    decided(one.concluded, one.upheld, "upheld") + lost(one.slashed)]));
  return table([["kind"], ["file"], ["by / accused"], ["outcome", "wrap"], ["state", "wrap"]], rows, "None.");
}

function ledger({ledger}) {
  const amounts = ["earned", "pending", "locked", "vested", "claimed", "fees", "slashed"];
  return table([["account"], ["role"], ["paid to"], ...amounts.map(name => [name, "n"])],
    ledger.map(one => [address(one.address), one.role, address(one.payee), ...amounts.map(name => tokens(one[name]))]),
    "No account yet.");
}

const ESCROW = [["deposited", "funded"], ["+ recovered from stakes", "recovered"], ["= free", "free"],
  ["+ reserved for files without a final outcome", "reserved"], ["+ earned and not claimed", "unpaid"],
  ["+ fees owed to committees", "owed_fees"], ["+ pay claimed", "claimed"], ["+ fees paid", "fees"], ["+ burnt", "burnt"],
  ["+ returned to the owner", "refunded"]];

function escrow({escrow, reconciliation}) {
  if (!escrow) return note("The pool is not on chain.");
  const parts = ESCROW.map(([text, name]) => [text, tokens(escrow[name])]);
  return [table([["part", "wrap"], ["tokens", "n"]], parts, ""), checked(reconciliation)];
}

function checked(found) {
  if (!found) return note("The ledger was not compared with the chain.");
  if (found.ledger_matches_chain && found.escrow_balanced && !found.findings.length)
    return el("p", {class: "note"}, pill("equal to the chain", "good"), ` to the last grain, at block ${found.block}`);
  return el("div", {class: "note"}, pill("differs from the chain", "bad"), ` at block ${found.block}`,
    el("ul", {}, ...found.findings.map(line => el("li", {}, line))));
}
