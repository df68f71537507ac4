// The dashboard's pages: each has a title, loads its documents and returns its elements.

// A run's history from what somebody saved: a history as this page saves it, or a run's whole record. Pure.

const isColumn = (values, length) => Array.isArray(values) && values.length === length
  && values.every(value => value === null || typeof value === "number");

// {name, history}; throws for anything else.
function historyOf(saved) {
  if (Array.isArray(saved?.submissions) && Array.isArray(saved.published)) return {name: String(saved.name), history: summed(saved)};
  const {name, history} = saved ?? {};
  if (!Array.isArray(history?.steps) || !history.steps.every(Number.isInteger)) throw new Error("it names no policy steps");
  if (!Object.values(history.columns).every(values => isColumn(values, history.steps.length)))
    throw new Error("its columns are not figures");
  return {name: String(name), history: {steps: history.steps, columns: history.columns}};
}

function summed({published, rewards, submissions}) {
  const steps = published.map(one => one.step), columns = {time: published.map(one => one.time)};
  const tokens = new Map();
  for (const {step, status, units} of submissions)
    if (status === "accepted") tokens.set(step, (tokens.get(step) ?? 0) + units);
  const told = new Map(rewards.map(one => [one.step, one]));
  columns.tokens = steps.map(step => tokens.get(step) ?? 0);
  columns.reward = steps.map(step => told.get(step)?.reward ?? null);
  for (const name of new Set(rewards.flatMap(one => one.sets.map(set => set.name))))
    columns[`heldout/${name}`] = steps.map(step => told.get(step)?.sets.find(set => set.name === name)?.average ?? null);
  return {steps, columns};
}

// The charts of a run from the columns of its history: specs for <run-chart>. Pure.

const LINE_TONES = ["blue", "green", "amber", "violet", "red", "grey"];
const STATUS_TONES = [["accepted", "green"], ["pending", "grey"], ["rejected", "red"], ["malformed", "amber"],
  ["unavailable", "violet"], ["void", "blue"], ["canary", "violet"]];

const empty = ({steps}) => steps.map(() => null);
const column = (history, name) => history.columns[name] ?? empty(history);

// Without the steps before the first and after the last known value, so that no axis runs to what was never reached.
function trimmed(spec) {
  const known = place => spec.series.some(one => one.values[place] != null);
  const first = spec.steps.findIndex((_, place) => known(place)), last = spec.steps.findLastIndex((_, place) => known(place));
  const cut = list => first < 0 ? [] : list.slice(first, last + 1);
  return {...spec, steps: cut(spec.steps), series: spec.series.map(one => ({...one, values: cut(one.values)}))};
}

function rewardChart(history) {
  const sets = Object.keys(history.columns).filter(name => name.startsWith("heldout/"));
  return trimmed({title: "Task reward by policy step", steps: history.steps, series: [
    {label: "trained on", tone: "blue", values: column(history, "reward")},
    ...sets.map((name, i) => ({label: `held out: ${name.slice(8)}`, tone: LINE_TONES[1 + i % 5], dots: true,
      values: column(history, name)}))]});
}

function throughputChart(history) {
  const times = column(history, "time"), made = column(history, "tokens");
  const rates = times.map((time, i) => times[i + 1] > time && made[i] != null ? made[i] / (times[i + 1] - time) : null);
  return trimmed({title: "Accepted tokens per second", small: true, steps: history.steps, format: compact,
    series: [{label: "tokens per second", tone: "green", values: rates}]});
}

function filesChart(history) {
  const seen = STATUS_TONES.filter(([status]) => history.columns[`files/${status}`]);
  return trimmed({title: "Files by policy step", small: true, stacked: true, steps: history.steps, format: compact,
    series: seen.map(([status, tone]) => ({label: status, tone, values: column(history, `files/${status}`)}))});
}

// [title, format, [metric, what it is], …]
const TRAINING = [["Entropy (nats)", figure, ["metric/entropy", "entropy"]],
  ["Loss", figure, ["metric/loss", "loss"]],
  ["Gradient norm", figure, ["metric/grad_norm", "before clipping"]],
  ["Clipped tokens", share, ["metric/clip_low", "lower bound"], ["metric/clip_high", "upper bound"],
    ["metric/masked", "masked for mismatch"]],
  ["Mismatch and movement (KL)", figure, ["metric/mismatch", "workers to trainer"], ["metric/kl", "within the step"]],
  ["Length (tokens)", figure, ["metric/output_length_mean", "mean output"], ["metric/length_error", "off the target"]],
  ["Groups without signal", share, ["metric/dropped_share", "dropped"]],
  ["Staleness (policy steps)", figure, ["metric/staleness_mean", "mean over files"]],
  ["Trainer's time", share, ["metric/idle_share", "waiting"], ["metric/mfu", "model FLOPs utilisation"]],
  ["Waiting (seconds) for", figure, ["metric/idle_seconds/starting", "a first file"],
    ["metric/idle_seconds/generating", "files"], ["metric/idle_seconds/judging", "verdicts"],
    ["metric/idle_seconds/confirming", "blocks"], ["metric/idle_seconds/fetching", "the bucket"]],
  ["Trained tokens per second", compact, ["metric/tokens_per_second", "trained"]],
  ["Files by their age", figure, ...[0, 1, 2, 3, 4, 5, 6, 7].map(age => [`metric/files/${age}`, `${age} steps`])],
  ["Batch", compact, ["metric/rollouts", "rollouts"], ["metric/tokens", "tokens"]],
  ["Groups", count, ["metric/groups_used", "with signal"], ["metric/groups_dropped", "without"]],
  ["Reward of the batch", figure, ["metric/task_reward_mean", "task"], ["metric/reward_mean", "shaped"]],
  ["Learning rate", figure, ["metric/learning_rate", "learning rate"]],
  ["Seconds of training", figure, ["metric/seconds", "a step"]]];

// What a step does not tell because there was none of it.
const COUNTED = /^metric\/(files|idle_seconds)\//;

function metric(history, name) {
  const values = column(history, name), trained = column(history, "metric/seconds");
  return COUNTED.test(name) ? values.map((value, i) => value ?? (trained[i] == null ? null : 0)) : values;
}

function trainingCharts(history) {
  const known = new Set(TRAINING.flatMap(([, , ...metrics]) => metrics.map(([name]) => name)));
  const chosen = TRAINING.map(([title, format, ...metrics]) =>
    [title, format, metrics.filter(([name]) => history.columns[name])]).filter(([, , metrics]) => metrics.length);
  const others = Object.keys(history.columns).filter(name => name.startsWith("metric/") && !known.has(name)
    && name !== "metric/reward" && history.columns[name].filter(value => value != null).length > 1);
  const all = [...chosen, ...others.map(name => [name.slice(7), figure, [[name, name.slice(7)]]])];
  return all.map(([title, format, metrics]) => trimmed({title, format, small: true, steps: history.steps,
    stacked: metrics[0][0].startsWith("metric/files/"),
    series: metrics.map(([name, label], i) => ({label, tone: LINE_TONES[i % 6], values: metric(history, name)}))}));
}

// Measurements against their thresholds, as bars.

// A finding's figures: those with a threshold (`NAME_reject`) as [name, value, threshold], and the others. Pure.
function figuresOf(figures) {
  const judged = [], others = [];
  for (const [name, value] of Object.entries(figures)) {
    if (`${name}_reject` in figures) judged.push([name, value, figures[`${name}_reject`]]);
    else if (!(name.endsWith("_reject") && name.slice(0, -7) in figures)) others.push([name.replaceAll("_", " "), value]);
  }
  return {judged, others};
}

const meters = judged => judged.length ? el("ul", {class: "meters"}, ...judged.map(([name, value, threshold]) => {
  const part = typeof value === "number" && threshold > 0 ? Math.max(0, value / threshold) : 1;
  const tone = part >= 1 ? "red" : part >= .5 ? "amber" : "green", plain = name.replaceAll("_", " ");
  return el("li", {}, el("span", {}, plain), el("span", {class: "dim"}, `${figure(value)} of ${figure(threshold)}`),
    el("div", {class: "track", role: "img", "aria-label": `${plain}: ${figure(value)}, threshold ${figure(threshold)}`},
      el("i", {class: `swatch ${tone}`, style: {width: `${Math.min(100, part * 100)}%`}})));
})) : null;

// Owners of validators' seats.

const validatorsPage = {
  title: () => "Validators",
  load: (source, {query: {after}}) => source.get("validators", {after}),
  view(list, {route, now}) {
    return [
      heading("Validators"),
      lead("They bond seats, are drawn by lot to judge files, vote in secret, and lose part of their bond for voting wrongly."),
      card("Validators", {wide: true}, table("Validators", [["Owner", {main: true}], ["Name"], ["State"], ["Seats", {n: true}],
        ["Files voted on", {n: true}], ["Fees", {n: true}], ["Penalties", {n: true}], ["Heartbeat"]],
      list.rows.map(one => [address("validator", one.address), words(one.name, 40), pill(one.state), count(one.seats.length),
        count(one.votes), tokens(one.fees), tokens(one.penalised), when(one.last_seen, now)]),
      "No seat is bonded yet: each owner of seats gets a row here, with votes, fees and penalties."),
      pager(list, route)),
    ];
  },
};

// Disputes, node challenges, opened canaries, penalties.

const disputesPage = {
  title: () => "Disputes",
  async load(source, {query: {after}}) {
    const [disputes, challenges, canaries, slashes] = await Promise.all([source.get("disputes"),
      source.get("challenges"), source.get("canaries"), source.get("slashes", {after})]);
    return {disputes, challenges, canaries, slashes};
  },
  view({disputes, challenges, canaries, slashes}, {route, now}) {
    return [
      heading("Disputes and penalties"),
      lead("Anybody may dispute an outcome before a larger jury, or accuse a node by what its files say together. Owners plant files whose answer is known, to see who checks."),
      card("Disputes", {wide: true}, table("Disputes", [["File", {main: true}], ["By"], ["Outcome"], ["State"], ["Reward",
        {n: true}], ["Opened"]], disputes.rows.map(one => [disputeLink(one.sequence), el("code", {title: one.disputer},
        one.disputer.slice(0, 10)), pill(one.outcome), one.resolved ? one.overturned ? pill("overturned", "warn")
        : pill("upheld", "good") : pill("open", ""), tokens(one.reward), when(one.time, now)]), "Nobody has disputed a file.")),
      card("Node challenges", {wide: true, note: "Anybody can judge a challenge again: muster verify challenge NUMBER."},
        table("Node challenges", [["Challenge", {main: true}], ["Accused"], ["By"], ["Files"], ["State"], ["Votes"],
          ["Taken", {n: true}], ["Opened"]], challenges.rows.map(one => [count(one.challenge), address("node", one.node),
          code(one.accuser), one.sequences.flatMap(sequence => [fileLink(sequence), " "]), [pill(one.outcome,
            CHALLENGE_TONES[one.outcome]), one.reason ? [" ", pill(one.reason)] : null], challengeVotes(one),
          tokens(one.slashed), when(one.time, now)]), "No node was accused.")),
      card("Canaries", {wide: true}, table("Canaries", [["File", {main: true}], ["Accused seats"], ["Reason"], ["State"],
        ["Taken"], ["Opened"]], canaries.rows.map(one => [fileLink(one.sequence), one.accused.join(", "), words(one.reason),
        one.concluded ? pill(one.upheld ? "upheld" : "not upheld", one.upheld ? "good" : "warn") : pill("open", ""),
        Object.entries(one.slashed).map(([seat, amount]) => `seat ${seat}: ${tokens(amount)}`).join(", "),
        when(one.time, now)]), "No canary was opened.")),
      card("Penalties, newest first", {wide: true}, slashTable(slashes.rows, now), pager(slashes, route)),
    ];
  },
};

const CHALLENGE_TONES = {open: "", upheld: "good", different: "good", refuted: "warn", dismissed: "", lapsed: ""};
const challengeVotes = ({votes, drawn, committed, jurors}) => {
  const opened = Object.entries(votes).map(([vote, seats]) => `${seats} ${vote}`).join(", ");
  return opened || (drawn ? `${committed} of ${jurors} voted, none opened` : "jury not drawn");
};

const disputeLink = sequence => el("a", {href: link("disputes", sequence)}, `#${sequence}`);

const slashTable = (rows, now) => table("Penalties", [["Who", {main: true}], ["Reason"], ["File"], ["Tokens",
  {n: true}], ["Block", {n: true}], ["When"]], rows.map(one => [one.kind === "node" ? address("node", one.who)
  : `seat ${one.who}`, pill(one.reason, "bad"), one.sequence < 0 ? "–" : fileLink(one.sequence), tokens(one.amount),
count(one.block), when(one.time, now)]), "Nobody was slashed.");

// One dispute: who says what, the first outcome, the juries, what it cost and paid.
const disputePage = {
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
        ...juries.map(one => card(`Jury of trial ${one.number}`, {}, table(`Votes of jury ${one.number}`, [["Seat", {main: true}],
          ["Owner"], ["Vote"]], one.members.map(member => [count(member.seat), address("validator", member.owner),
          member.code ? pill(member.code) : member.committed ? "committed" : "none"]))))),
    ];
  },
};

// What was looked for.

const PLACES = {node: id => link("nodes", id), validator: id => link("validators", id), submission: id => link("files", id),
  step: id => link("steps", id), operator: id => link("operators", id), pool: () => link("pools")};

const searchPage = {
  title: () => "Search",
  async load(source, {query: {q = ""}}) {
    const found = q.trim() ? await source.get("search", {q: q.slice(0, 80)}) : {query: "", hits: []};
    return found;
  },
  view({query, hits}) {
    return [
      heading("Search"),
      lead("By a part of a name, the beginning of an address or hash (four digits at least), or the number of a file, step, "
        + "seat or pool."),
      card(query ? `Found for ${query.slice(0, 60)}` : "Nothing asked", {wide: true}, hits.length ? el("ul", {class: "hits"},
        ...hits.map(hit => el("li", {}, el("a", {href: PLACES[hit.kind]?.(hit.id) ?? "#/"}, words(hit.label, 60)), " ",
          hit.id.startsWith("0x") ? code(hit.id) : null))) : el("p", {class: "empty"}, query
        ? "Nothing has that name, address, hash or number." : "Type into the box above.")),
    ];
  },
};

// Every pool of these contracts.

const poolsPage = {
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

// The pool's nodes.

const NODE_STATES = ["healthy", "unhealthy", "waiting", "dead", "ejected", "left"];

const nodesPage = {
  title: () => "Nodes",
  load: (source, {query: {after, state, order}}) => source.get("nodes", {after, state, order}),
  view(list, {route, overview, now}) {
    const all = Object.values(overview?.nodes ?? {}).reduce((sum, number) => sum + number, 0);
    return [
      heading("Nodes"),
      lead(`${plural(all, "node")} ever joined this pool.`),
      choices("State", "state", [["All", ""], ...NODE_STATES.filter(name => overview?.nodes[name])
        .map(name => [`${name} ${count(overview.nodes[name])}`, name])], route),
      choices("Order", "order", [["As they joined", ""], ["Earned", "earned"], ["Slashed", "slashed"]], route),
      card("Nodes", {wide: true}, nodesTable(list.rows, now), pager(list, route)),
    ];
  },
};

const nodesTable = (rows, now) => table("Nodes", [["Node", {main: true}], ["Name"], ["State"], ["Doing"],
  ["Accepted", {n: true}], ["Rejected", {n: true}], ["Earned", {n: true}], ["Slashed", {n: true}], ["Heartbeat"]],
rows.map(one => [address("node", one.address), words(one.name, 40), pill(one.state),
  one.ejected ? pill(one.ejected, "bad") : words(one.phase, 60), count(one.accepted), count(one.rejected),
  tokens(one.earned), tokens(one.slashed), when(one.last_seen, now)]), "No such node yet: each node that joins gets a row here.");

// How to take part: what it asks, what it pays, and the commands.

const joinPage = {
  title: () => "Join",
  load: source => source.get("overview"),
  view(overview, {source}) {
    const {terms} = overview, url = source.live ? location.origin : "URL-OF-THE-POOL", {rate} = terms ?? {};
    return [
      heading("Join this pool"),
      lead(source.live ? "Lend a computer, or judge what others made. You need no permission"
        : "This is a report. Its pool may have ended; a live pool's own page names its address. You need no permission",
      terms?.invite_only ? ", but this pool's owner invites its nodes." : "."),
      terms ? card("Terms", {wide: true, note: "From the contract; they cannot change while the pool lives."}, facts([
        ["Pay", `${tokens(BigInt(rate) * 1_000_000n)} tokens per million output tokens accepted`],
        ["Stake of a node", `${tokens(terms.stake)} tokens at least, taken for fraud, returned otherwise`],
        ["Paid out", `once an outcome cannot be disputed any more: after ${duration(terms.challenge_seconds)}`],
        ["Judged by", `${terms.committee} validators drawn by lot, on ${share(terms.audit_share)} of its rows at least`],
        ["Fee of a validator", `${tokens(terms.fee)} tokens for each file`]])) : null,
      el("div", {class: "grid"},
        card("As a node", {}, commands([["Install, in a checkout of muster", "make setup"],
          ["Write a profile, and check this computer", `muster init operator --pool ${url} && muster node check`],
          ["Make one file and have it judged, without risk", "muster node dry-run"],
          ["See the terms and start; a pool that lends stakes needs nothing of yours", `muster node up --pool ${url}`],
          ["Later", "muster node status"]])),
        card("As a validator", {}, commands([["Write a profile", `muster init validator --pool ${url}`],
          ["Bond a seat and judge", `muster validator up --pool ${url}`],
          ["Later", "muster validator status"]])),
        card("As the owner of a pool", {}, commands([
          ["Name contracts, bucket and address", "muster init owner --deployment deployment.json --url URL --s3 s3.json"],
          ["Choose model and problems", "muster pool init --model ./my-model --env reasoning_gym/chain_sum"],
          ["Put a budget in escrow", "muster pool create --terms base-sepolia --budget 2000 --dry-run"],
          ["Serve nodes and validators", "muster pool serve"], ["Train, in another terminal", "muster pool train"]])),
        card("As an onlooker", {}, commands([["Judge everything again yourself; no key is needed",
          `muster verify files --pool ${url} --deployment deployment.json`],
        ["Keep this run as one page", `muster pool report --pool ${url}`]]))),
    ];
  },
};

const commands = entries => el("ol", {class: "story"}, ...entries.map(([what, command]) =>
  el("li", {}, what, el("div", {class: "command"},
    el("pre", {tabindex: 0, role: "region", "aria-label": `Command: ${command}`}, command), copyButton(command)))));

// Browsers have a clipboard only where the page came encrypted or from this machine.
function copyButton(text) {
  if (!navigator.clipboard) return null;
  const button = el("button", {type: "button", "aria-label": `Copy: ${text}`, onclick: async () => {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  }}, "Copy");
  return button;
}

// What training did, step by step, as the trainer reported it.

const trainingPage = {
  title: () => "Training",
  load: source => source.get("history"),
  view(history) {
    const charts = trainingCharts(history);
    return [
      heading("Training"),
      lead("As the trainer reports it, signed by the pool's owner. Point at a chart to read all of them at one step."),
      el("div", {class: "grid thirds"},
        card("Reward", {wide: true}, chart(rewardChart(history))),
        ...charts.map(spec => card(spec.title, {}, chart(spec)))),
      charts.length ? null : el("p", {class: "empty"}, "No step has been reported yet: entropy, loss, lengths and the "
        + "trainer's time will be charts here."),
    ];
  },
};

// Runs side by side: this one, and the records or histories of others, read from files on this computer.

const MOST_BYTES = 64 << 20;
const others = [];
let problem = "";

const comparePage = {
  title: () => "Compare",
  async load(source) {
    const [overview, history] = await Promise.all([source.get("overview"), source.get("history")]);
    return [{name: `${overview.name} (this run)`, history}];
  },
  view(own, {renew}) {
    const runs = [...own, ...others];
    return [
      heading("Compare runs"),
      lead("Add the ", el("code", {}, "record.json"), " that a run leaves, or a history saved below. Files stay on this computer."),
      el("p", {class: "pick"}, el("label", {for: "runs"}, "Add runs "), el("input", {id: "runs", type: "file", multiple: true,
        accept: ".json,application/json", onchange: event => add(event.target.files).then(renew)}),
      el("button", {type: "button", onclick: () => save(own[0])}, "Save this run's history"),
      others.length ? el("button", {type: "button", onclick: () => { others.length = 0; renew(); }}, "Remove the others") : null),
      problem ? el("p", {class: "banner warn", role: "alert"}, problem) : null,
      el("div", {class: "grid"}, card("Held-out reward by policy step", {wide: true}, chart(curvesOf(runs, heldout,
        "Held-out reward by policy step"))), card("Reward trained on, by policy step", {wide: true},
        chart(curvesOf(runs, run => run.columns.reward, "Reward trained on, by policy step"))),
      card("In figures", {wide: true}, table("Runs", [["Run", {main: true}], ["Steps", {n: true}], ["First held out", {n: true}],
        ["Last held out", {n: true}], ["Last trained on", {n: true}], ["Tokens accepted", {n: true}], ["Hours", {n: true}]],
      runs.map(({name, history}) => [words(name), count(history.steps.at(-1)), figure(first(heldout(history))),
        figure(lastOf(heldout(history))), figure(lastOf(history.columns.reward)),
        count((history.columns.tokens ?? []).reduce((sum, value) => sum + (value ?? 0), 0)), hours(history)])))),
    ];
  },
};

const first = values => values?.find(value => value != null) ?? null;
const lastOf = values => values?.findLast(value => value != null) ?? null;
const heldout = history => history.columns[Object.keys(history.columns).find(name => name.startsWith("heldout/"))];
const hours = ({columns: {time}}) => figure((lastOf(time) - first(time)) / 3600);

function curvesOf(runs, values, title) {
  const steps = [...new Set(runs.flatMap(one => one.history.steps))].sort((a, b) => a - b);
  return {title, steps, series: runs.map(({name, history}, i) => {
    const known = new Map(history.steps.map((step, place) => [step, values(history)?.[place] ?? null]));
    return {label: name.slice(0, 60), tone: LINE_TONES[i % LINE_TONES.length], values: steps.map(step => known.get(step) ?? null)};
  })};
}

async function add(files) {
  problem = "";
  for (const file of files) {
    try {
      if (file.size > MOST_BYTES) throw new Error("it is too large");
      others.push({name: file.name, ...historyOf(JSON.parse(await file.text()))});
    } catch (error) {
      problem = `${file.name} is neither a run's record nor a saved history: ${error.message}`;
    }
  }
}

function save({name, history}) {
  const url = URL.createObjectURL(new Blob([JSON.stringify({name, history})], {type: "application/json"}));
  el("a", {href: url, download: "history.json"}).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

// The run at a glance: reward, throughput, nodes on a map of states, money.

const OUTCOMES = ["accepted", "pending", "rejected", "malformed", "unavailable", "void", "canary"];
const REFUSED = OUTCOMES.slice(2);

const overviewPage = {
  title: () => "Overview",
  async load(source) {
    const accepted = asked => source.get("submissions", {status: "accepted", limit: 1, ...asked});
    const [overview, history, first, newest] = await Promise.all([source.get("overview"), source.get("history"),
      accepted({step: 0}), accepted({})]);
    const files = [...new Map([...first.rows, ...newest.rows].map(file => [file.sequence, file])).values()];
    return {overview, history, files};
  },
  view({overview, history, files}, {source, show}) {
    const samples = files.map(file => ({file, told: evidence(source, `submissions/${file.sequence}/rollouts`, {}, show)}));
    return [
      heading(words(overview.name), pill(overview.phase)),
      lead(words(overview.task), " · ", words(overview.model), ` · pool ${overview.pool} · ${overview.chain.network}, block `
        + count(overview.chain.head)),
      source.run?.summary ? verdictOnRun(source.run.summary) : null,
      headline(overview),
      el("div", {class: "grid"},
        card("Reward by policy step", {wide: true, note: "Line: mean over the files that a step was trained on. Dots: "
          + "held-out problems, the same each time."}, chart(rewardChart(history))),
        samplesCard(samples),
        nodesCard(overview, source),
        heldCard(overview),
        card("Accepted tokens per second", {note: "By the policy step they were generated with."},
          chart(throughputChart(history))),
        card("Files by policy step", {note: "By the step they were generated with."}, chart(filesChart(history))),
        moneyCard(overview, {action: el("a", {href: link("money")}, "Every account")}, [["Ledger", ledgerPill(overview)]]),
        source.run ? null : waitsCard(overview)),
    ];
  },
};

const refusedFiles = counts => REFUSED.reduce((sum, name) => sum + (counts[name] ?? 0), 0);

function headline(overview) {
  const {counts, throughput} = overview, refused = refusedFiles(counts);
  const decided = (counts.accepted ?? 0) + refused;
  return tiles([
    ["Policy step", [count(overview.step), el("small", {}, ` of ${count(overview.steps)}`)]],
    ["Reward", figure(overview.reward), {sub: overview.heldout == null ? "trained on"
      : `held out ${figure(overview.heldout)} at step ${overview.heldout_step}`}],
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
    overview.map ? nodeMap(overview.map, open)
      : el("p", {class: "empty"}, "No node has joined yet: each is a square here, coloured by its state."),
    el("div", {class: "legend"}, ...legend));
}

function samplesCard(samples) {
  const few = told => told?.rows ? {...told, rows: [...new Map(told.rows.map(row =>
    [`${row.problem} ${row.task_reward}`, row])).values()].slice(0, 3)} : told;
  return samples.length ? card("What the model answers", {wide: true, note: "From accepted files, of the base model "
    + "and of the newest step."}, el("div", {class: "grid"}, samples.map(({file, told}) => el("div", {},
    el("h3", {}, "Step ", stepLink(file.step), ", ", el("a", {href: link("files", file.sequence)}, `file ${file.sequence}`)),
    completions(few(told), ` of file ${file.sequence}`))))) : null;
}

function heldCard({held, step}) {
  if (!held?.length) return null;
  return card("Who has which step", {note: "The newest whose weights each says it has; checked by nobody."},
    table("Weights by policy step", [["Step", {main: true}], ["Nodes", {n: true}], ["Validators", {n: true}],
      ["Relays", {n: true}], ["Behind", {n: true}]],
    held.map(one => [stepLink(one.step), count(one.nodes), count(one.validators), count(one.relays),
      count(Math.max(0, step - one.step))])));
}

// Where the pool's deposits are, and what was slashed, as bars of one scale with their exact amounts.
const FLOW = [["Paid to nodes", "green", ["claimed"]], ["Earned by nodes, not claimed", "blue", ["unpaid"]],
  ["Reserved for open files", "violet", ["reserved"]], ["Validators' fees, paid and owed", "amber", ["fees", "owed_fees"]],
  ["Unspent", "grey", ["free"]], ["Returned to the owner", "faint", ["refunded"]], ["Burnt", "red", ["burnt"]]];

function moneyCard(overview, properties = {}, more = []) {
  const {escrow, terms, slashed} = overview;
  if (!escrow) return card("Where the money goes", properties, el("p", {class: "empty"},
    "The pool is not on chain yet. Once its owner deposits a budget, this shows what it is spent on."));
  const sum = names => names.reduce((total, name) => total + BigInt(escrow[name]), 0n);
  const flow = FLOW.map(([label, tone, names]) => [label, tone, sum(names)]).filter(([, , amount]) => amount);
  const all = sum(["funded", "recovered"]), taken = BigInt(slashed), part = amount => Number(amount) / Number(all || 1n);
  const bar = (title, parts) => el("div", {class: "flow", role: "img", "aria-label": `${title}: ${parts.map(([label, , amount]) =>
    `${label} ${tokens(amount)}`).join(", ")}`}, parts.map(([, tone, amount]) => el("i", {class: `swatch ${tone}`,
    style: {width: `${Math.min(1, part(amount)) * 100}%`}})));
  const rows = flow.map(([label, tone, amount]) => [[el("i", {class: `dot swatch ${tone}`}), label], tokens(amount),
    share(part(amount))]);
  const recovered = BigInt(escrow.recovered);
  return card("Where the money goes", {wide: true, ...properties}, bar("Deposits", flow), el("div", {class: "grid"},
    table("Where the money goes", [["Part", {main: true}], ["Tokens", {n: true}], ["Share", {n: true}]], rows),
    el("div", {}, facts([["Deposited", `${tokens(escrow.funded)} tokens`],
      ["Pay", terms && `${tokens(BigInt(terms.rate) * 1_000_000n)} per million tokens`],
      ["Budget ends", budgetEnd(overview)],
      ["Slashed", [`${tokens(taken)} tokens of stakes and bonds`,
        recovered ? `; ${tokens(recovered)} of them came back to the pool` : null,
        taken ? bar("Slashed", [["came back", "violet", recovered], ["burnt or paid out", "red", taken - recovered]]) : null]],
      ...more]))));
}

const ledgerPill = overview => pill(compared(overview).word, compared(overview).tone);
const perDay = (baseUnits, seconds) => Number(baseUnits) * 86_400 / seconds, LEAST_SECONDS = 600;
const lately = seconds => `the last ${duration(seconds)}`;

// The day on which the unspent budget is used up if spending goes on as today; an estimate, or why there is none.
function budgetEnd({escrow, terms, today, phase, time}) {
  if (!terms || !today || phase === "finished") return null;
  const spent = perDay(BigInt(today.tokens) * BigInt(terms.rate) + BigInt(today.files) * BigInt(terms.fee)
    * BigInt(terms.committee), today.seconds), days = Number(escrow.free) / spent;
  if (!spent || today.seconds < LEAST_SECONDS) return `no estimate: too little was spent in ${lately(today.seconds)}`;
  const end = days < 3650 ? `about ${clock(time + days * 86_400).slice(0, 10)}` : "in more than ten years";
  return `${end}, if pay and fees go on as in ${lately(today.seconds)} (${compact(spent / 1e9)} tokens a day)`;
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
  if (safeguards) list.push(["Files relayed by the service", count(safeguards.relayed)],
    ["Files submitted by receipt", count(safeguards.by_receipt.length), {sub: "not relayed"}],
    ["Members without ether", `${safeguards.without_ether} of ${safeguards.members}`],
    ["Seats that opted in", `${safeguards.opted_in} of ${safeguards.needed}`],
    ["Silent committees replaced", count(safeguards.silent.length)],
    ["Canaries disputed in vain", count(safeguards.dodged.length)]);
  const cheaters = summary.cheaters.map(one => [to("node", one.address, el("code", {}, one.address.slice(0, 10))),
    words(one.reason ?? "–"), pill(one.slashed ? "slashed" : "not slashed", one.slashed ? "good" : "bad"),
    tokens(one.slashed_base_units), pill(one.ejected ? "ejected" : "not ejected", one.ejected ? "good" : "bad"),
    count(one.submissions), count(one.rollouts_trained)]);
  return [card("What this run showed", {wide: true}, tiles(list)), cheaters.length ? card("Cheaters", {wide: true},
    table("Cheaters", [["Node", {main: true}], ["Reason"], ["Stake"], ["Tokens", {n: true}], ["Standing"],
      ["Files", {n: true}], ["Rollouts trained", {n: true}]], cheaters)) : null];
}

// Where every base unit is: the pool's escrow and the account of everyone it pays.

const AMOUNTS = ["earned", "pending", "locked", "vested", "claimed", "fees", "slashed"];

const moneyPage = {
  title: () => "Money",
  async load(source, {query}) {
    const [overview, ledger] = await Promise.all([source.get("overview"), source.get("ledger", {after: query.after})]);
    return {overview, ledger};
  },
  view({overview, ledger}, {route}) {
    const check = compared(overview);
    return [
      heading("Money"),
      lead("Everything here follows from the chain's events alone, in tokens, exact to a billionth."),
      el("div", {class: "grid"},
        moneyCard(overview),
        card("Checked against the chain", {wide: true, note: "Accounts, balances and transfers in the contracts, "
          + "compared with what the events say."}, el("p", {}, ledgerPill(overview)),
        check.findings.length ? el("ul", {}, ...check.findings.map(line => el("li", {}, line))) : null)),
      card("Accounts", {wide: true, note: "Pending: submitted and undecided. Locked: accepted, still open to dispute. Vested: "
        + "can be claimed now."}, table("Accounts", [["Account", {main: true}], ["Role"], ["Paid to"],
        ...AMOUNTS.map(name => [name[0].toUpperCase() + name.slice(1), {n: true}])],
      ledger.rows.map(one => [address(one.role === "worker" ? "node" : "validator", one.address), one.role, code(one.payee),
        ...AMOUNTS.map(name => tokens(one[name]))]), "No account yet: each node and each owner of seats gets a row here."),
      pager(ledger, route)),
    ];
  },
};

// One owner of seats: bonds, votes, fees, penalties.

const validatorPage = {
  title: ({id}) => `Validator ${id.slice(0, 10)}`,
  load: (source, {id}) => source.get(`validators/${id}`),
  view(one, {now}) {
    const bonded = one.seats.filter(seat => seat.active).reduce((sum, seat) => sum + BigInt(seat.bond), 0n);
    return [
      heading(one.name ? words(one.name) : "Validator", pill(one.state)),
      lead(whole(one.address)),
      tiles([["Bonded", tokens(bonded), {sub: plural(one.seats.length, "seat")}], ["Files voted on", count(one.votes)],
        ["Fees earned", tokens(one.fees)], ["Penalties", tokens(one.penalised),
          {tone: one.penalised === "0" ? null : "bad"}]]),
      el("div", {class: "grid"},
        ownWords(one, now),
        card("Seats", {}, table("Seats", [["Seat", {main: true}], ["Voter"], ["Bond", {n: true}], ["State"]],
          one.seats.map(seat => [count(seat.seat), code(seat.voter), tokens(seat.bond), seat.active ? pill("active", "good")
            : [pill("left"), seat.release_at && seat.bond !== "0" ? ` unlocks ${unlocks(seat.release_at, now)}` : null]]))),
        one.recent ? card("Newest votes", {wide: true}, table("Newest votes", [["File", {main: true}], ["Seat", {n: true}],
          ["Its vote"], ["The outcome"], ["Submitted"]], one.recent.map(vote => [fileLink(vote.sequence), count(vote.seat),
          pill(vote.code), pill(vote.reason || vote.status, toneOf(vote.status)), when(vote.time, now)]),
        "It has not revealed a vote yet.")) : null,
        one.slashes ? card("Penalties", {wide: true}, slashTable(one.slashes, now)) : null),
    ];
  },
};

const ownWords = (one, now, more = []) => card("What it says of itself", {note: "From its newest heartbeat; checked by nobody."},
  one.last_seen == null ? el("p", {class: "empty"}, "It has sent no heartbeat yet. The first one says here what it does, with "
    + "which engine and version.") : facts([["Heard", when(one.last_seen, now)], ["Doing", words(one.phase)],
    ["Engine", words(one.engine)], ["Version", words(one.version)], ...more]));

// Policy steps, newest first.

const stepsPage = {
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
      "No step has been published yet: each gets a row here, with its reward and files."), pager(list, route)),
    ];
  },
};

// Submitted files, newest first.

const filesPage = {
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

const outcome = one => pill(one.status === "accepted" || !one.reason ? one.status : one.reason, toneOf(one.status));

const filesTable = (rows, now) => table("Files", [["File", {main: true}], ["Node"], ["Step", {n: true}],
  ["Tokens", {n: true}], ["Outcome"], ["Trained in", {n: true}], ["Submitted"]],
rows.map(one => [fileLink(one.sequence), address("node", one.node), stepLink(one.step), count(one.units),
  [outcome(one), one.disputed ? [" ", pill("disputed", "warn")] : null], stepLink(one.trained), when(one.time, now)]),
"No such file yet: each file gets a row here, with its outcome.");

// One policy step: its weights, the time line of its making and use, what training measured, its files.

const stepPage = {
  title: ({id}) => `Policy step ${id}`,
  async load(source, {id}) {
    const [step, files] = await Promise.all([source.get(`policy-steps/${id}`),
      source.get("submissions", {step: id, limit: 10})]);
    return {step, files};
  },
  view({step, files}, {overview, now}) {
    const near = [step.step > 0 && el("a", {href: link("steps", step.step - 1)}, "Previous"),
      step.step < (overview?.step ?? 0) && el("a", {href: link("steps", step.step + 1)}, "Next")];
    return [
      heading(`Policy step ${step.step}`, el("nav", {class: "choices", "aria-label": "Neighbouring steps"}, ...near)),
      lead(`Published ${clock(step.time)} in block ${count(step.block)}.`),
      tiles([["Reward", figure(step.reward)], ["Held out", figure(step.heldout)],
        ["Files accepted", count(step.files.accepted ?? 0)], ["Not accepted", count(refusedFiles(step.files))],
        ["Awaiting a verdict", count(step.files.pending ?? 0)], ["Tokens accepted", count(step.tokens)]]),
      el("div", {class: "grid"},
        card("Time line", {note: "From the step's publication; the training that made it lies before."}, timeline(step)),
        card("Weights", {}, facts([["Manifest", step.manifest && whole(step.manifest)],
          ["Transaction", transaction(step.tx, overview?.chain)],
          ["Files it was made from", step.report && count(step.report.consumed.length)]])),
        evaluation(step), measured(step),
        card("Files generated with it", {wide: true,
          action: el("a", {href: link("files", null, {step: step.step})}, "All of them")}, filesTable(files.rows, now))),
    ];
  },
};

function timeline({time, submitted, accepted, report}) {
  const train = report?.timings.train, spans = [
    train != null && ["Training that made it", time - train, time, "amber"],
    submitted && ["First file in the making", time, submitted[0], "blue"],
    submitted && ["Files submitted", submitted[0], submitted[1], "violet"],
    accepted && ["Files accepted", accepted[0], accepted[1], "green"]].filter(Boolean);
  if (!spans.length) return el("p", {class: "empty"}, "Nothing was made from this step yet.");
  const low = Math.min(...spans.map(one => one[1])), high = Math.max(...spans.map(one => one[2])), whole = high - low || 1;
  return el("ol", {class: "spans"}, ...spans.map(([what, from, until, tone]) => el("li", {},
    el("span", {}, what), el("span", {class: "dim"}, duration(until - from)),
    el("div", {class: "track"}, el("i", {class: `swatch ${tone}`, style: {marginLeft: `${(from - low) / whole * 100}%`,
      width: `${Math.max(.6, (until - from) / whole * 100)}%`}})))));
}

function evaluation({report}) {
  const sets = report?.evaluation?.evaluation.results ?? [];
  if (!sets.length) return null;
  return card("Held-out sets", {wide: true, note: "Average: mean task reward over all tries, with its standard error. "
    + "pass@k: the chance that one of k tries is right. Signed by the pool's owner."},
  table("Held-out sets", [["Set", {main: true}], ["Problems × tries", {n: true}], ["Average", {n: true}], ["Solved"],
    ["Tokens", {n: true}]], sets.map(one => [one.name, `${one.problems} × ${one.samples}`,
    `${figure(one.average)} ± ${figure(one.error)}`,
    Object.entries(one.passed).map(([k, value]) => `pass@${k} ${figure(value)}`).join(" · "), figure(one.length)])));
}

function measured({report}) {
  if (!report) return card("Training", {}, el("p", {class: "empty"}, "The trainer has not reported on this step."));
  const rows = [...Object.entries(report.metrics), ...Object.entries(report.timings).map(([name, value]) =>
    [`${name} (seconds)`, value])];
  return card("As the trainer reported it", {wide: true}, facts(rows.map(([name, value]) => [name, figure(value)])));
}

// One node: does the network see it, what is it doing, what did it earn, what was refused and why.

const nodePage = {
  title: ({id}) => `Node ${id.slice(0, 10)}`,
  async load(source, {id, query}) {
    const [node, files] = await Promise.all([source.get(`nodes/${id}`),
      source.get("submissions", {node: id, after: query.after})]);
    return {node, files};
  },
  view({node, files}, {route, now}) {
    const decided = node.accepted + node.rejected;
    return [
      heading(node.name ? words(node.name) : "Node", pill(node.state)),
      lead(whole(node.address), " of operator ", to("operator", node.operator, whole(node.operator))),
      node.ejected ? el("p", {class: "banner bad"}, `Ejected: ${node.ejected}. Its stake paid ${tokens(node.slashed)}.`) : null,
      node.trouble ? el("p", {class: "banner warn"}, words(node.trouble, 300)) : null,
      tiles([["Earned", tokens(node.earned), {sub: `${tokens(node.claimed)} claimed`}],
        ["Files accepted", count(node.accepted), {sub: decided ? `${share(node.accepted / decided)} of those judged` : ""}],
        ["Files rejected", count(node.rejected), {tone: node.rejected ? "bad" : null}],
        ["Awaiting a verdict", count(node.pending)], ["Output tokens", count(node.units)],
        ["Slashed", tokens(node.slashed), {tone: node.slashed === "0" ? null : "bad"}]]),
      el("div", {class: "grid"},
        ownWords(node, now, [["Policy step", node.at_step ?? "–"], ["Newest weights", node.weights ?? "–"],
          ...Object.entries(node.metrics).map(([name, value]) => [words(name, 60), figure(value)])]),
        card("Files, newest first", {wide: true}, filesTable(files.rows, now), pager(files, route))),
    ];
  },
};

// One operator: what its nodes earn by day, what unlocks when, and what a day like the last hours would pay.

const DAY = 86_400, MOST_DAYS = 90;

const operatorPage = {
  title: ({id}) => `Operator ${id.slice(0, 10)}`,
  async load(source, {id, query}) {
    const [one, nodes] = await Promise.all([source.live ? source.get(`operators/${id}`) : null,
      source.get("nodes", {operator: id, after: query.after})]);
    return {one, nodes};
  },
  view({one, nodes}, {route, overview, now}) {
    return [
      heading("Operator"),
      lead(whole(route.id)),
      one ? earnings(one, overview, now) : null,
      card("Nodes", {wide: true}, nodesTable(nodes.rows, now), pager(nodes, route)),
    ];
  },
};

function earnings({total, days, recent, unlocks: span, stakes, unbonding}, overview, now) {
  const staked = ({stake, nodes, unlocks: time}) => [`Stake of ${plural(nodes, "node")}`, `${tokens(stake)} tokens: `
    + (time == null ? `${duration(unbonding)} after leaving, once no file is before a jury` : unlocks(time, now))];
  return [
    tiles([["Earned", tokens(total.earned), {sub: `${tokens(total.claimed)} paid`}],
      ["Can be claimed", tokens(total.vested)], ["Locked", tokens(total.locked), {sub: "accepted, open to dispute"}],
      ["Not judged yet", tokens(total.pending)],
      ["Slashed", tokens(total.slashed), {tone: total.slashed === "0" ? null : "bad"}]]),
    el("div", {class: "grid"},
      card("Pay by day", {wide: true, note: "In tokens, by the day (UTC) on which files were accepted."},
        chart(payChart(days, now))),
      card("What unlocks when", {}, facts([["Pay", total.locked === "0" ? "none is locked" : `${tokens(total.locked)} tokens: `
        + (span ? unlocks(span[0], now) + (span[1] > span[0] ? ` until ${unlocks(span[1], now)}` : "")
          : "held, since the node that earned it is frozen or slashed")], ...stakes.map(staked)])),
      card("Forecast", {}, forecast(recent, overview))),
  ];
}

function payChart(days, now) {
  const paid = new Map(days.map(({day, pay}) => [day / DAY, Number(pay) / 1e9])), today = Math.floor(now / DAY);
  const first = Math.max(today - MOST_DAYS + 1, days.length ? days[0].day / DAY : today + 1);
  const steps = Array.from({length: Math.max(0, today - first + 1)}, (_, i) => first + i);
  return {title: "Pay by day", axis: "day", named: day => clock(day * DAY).slice(0, 10), stacked: true, steps,
    series: [{label: "pay", tone: "green", values: steps.map(day => paid.get(day) ?? 0)}],
    empty: "No file was accepted yet: the first one begins a bar for its day."};
}

function forecast({seconds, tokens: made, files}, {terms, phase, ...overview}) {
  const none = why => el("p", {class: "empty"}, `No estimate: ${why}.`);
  if (phase === "finished") return none("the pool's run is over");
  if (!made) return none(`no file was accepted in ${lately(seconds)}`);
  if (seconds < LEAST_SECONDS) return none(`it takes ${duration(LEAST_SECONDS)} of work, and there are ${duration(seconds)}`);
  const end = budgetEnd({terms, phase, ...overview});
  const pay = perDay(BigInt(made) * BigInt(terms.rate), seconds) / 1e9;
  return [facts([["A day, estimated", `≈ ${figure(+pay.toPrecision(3))} tokens`]]), el("p", {class: "note"},
    `If every day goes like ${lately(seconds)}, in which ${plural(files, "file")} with ${count(made)} accepted output tokens were decided, `
    + "at the pool's pay. How much work the pool has, refused files and the end of its budget change it"
    + `${end ? `. Budget ends: ${end}.` : "."}`)];
}

// One file: its outcome and why, the figures of each check against its threshold, the votes, prompts and completions.

const filePage = {
  title: ({id}) => `File ${id}`,
  load: (source, {id}) => source.get(`submissions/${id}`),
  view(file, {route, overview, now, source, show}) {
    const voted = file.panels?.flatMap(one => one.members).filter(one => one.verdict).length;
    const verdicts = evidence(source, `submissions/${file.sequence}/verdicts`, {}, show, voted);
    const rollouts = evidence(source, `submissions/${file.sequence}/rollouts`, {after: route.query.after}, show);
    return [
      heading(`File ${file.sequence}`, outcome(file), file.disputed ? pill("disputed", "warn") : null),
      lead(...inWords(file, now)),
      el("div", {class: "grid"},
        card("On chain", {}, facts([["Node", address("node", file.node)], ["Policy step", stepLink(file.step)],
          ["Number among its node's files", count(file.counter)], ["Output tokens", count(file.units)],
          ["Completions", count(file.rows)], ["Submitted", [when(file.time, now), ` in block ${count(file.block)}`]],
          ["Decided", file.decided && clock(file.decided)], ["Final", file.final && clock(file.final)],
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

// What is read from the bucket can take seconds: the page does not wait for it, reads it once, and is shown again when it
// is there. Null while it is read.
const read = new Map();
function evidence(source, path, asked, show, version = 0) {
  const name = JSON.stringify([path, asked, version]);
  if (!read.has(name)) {
    read.set(name, null);
    source.get(path, asked).catch(error => ({failed: error.message})).then(found => {
      read.set(name, found);
      show();
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
    malformed: "The file is not what a worker writes. It earns nothing.", void: "Two committees did not decide it. It is "
      + "paid and never trained on.",
    unavailable: "The committee could not fetch it. An upload receipt keeps its pay.",
    canary: "A planted test file: a validator that accepted it was not checking."};
  return [`${file.reason || file.status}. ${told[file.status] ?? ""}`];
}

function votes({panels}) {
  if (!panels) return null;
  if (!panels.length) return card("Votes", {}, el("p", {class: "empty"}, "No committee has been drawn yet."));
  const named = one => one.kind === "jury" ? `Jury of trial ${one.number}`
    : one.number ? `Committee, round ${one.number + 1}` : "Committee";
  return card("Votes", {}, ...panels.flatMap(one => [
    el("h3", {}, named(one), " ", one.outcome ? pill(one.outcome) : pill("open", "")),
    table(`Votes: ${named(one)}`, [["Seat", {main: true}], ["Owner"], ["Vote"], ["Verdict"]], one.members.map(member =>
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

// `whose`: tells a screen reader the rows of several files on one page apart.
function completions(told, whose = "") {
  if (!told) return el("p", {class: "empty"}, READING);
  if (told.failed || told.problem) return el("p", {class: "empty"}, told.failed || told.problem);
  return el("div", {class: "rollouts"}, ...told.rows.map(row => el("article", {class: "rollout"},
    el("h3", {}, `Problem ${row.problem + 1}, try ${row.sample + 1} `, pill(`reward ${figure(row.reward)}`,
      row.task_reward > 0 ? "good" : "")),
    el("p", {class: "note"}, `${plural(row.prompt_tokens, "prompt token")}, ${plural(row.output_tokens, "output token")}`
      + `${row.target_length ? `, ${row.target_length} asked for` : ""}; ${row.stopped ? "ended by itself" : "cut off at the limit"}`
      + `${row.length_penalty ? `; length penalty ${figure(row.length_penalty)}` : ""}${row.text ? "" : "; token ids"}`),
    el("pre", {class: "prompt", dir: "auto", tabindex: 0, role: "region", "aria-label": `Prompt of row ${row.row}${whose}`},
      row.prompt), el("pre", {dir: "auto", tabindex: 0, role: "region",
      "aria-label": `Completion of row ${row.row}${whose}`}, row.completion))));
}

// Shows the page that the address names, and keeps it up to date.

// Name in the address → [page of all, page of one].
const ROUTES = {overview: [overviewPage], training: [trainingPage], steps: [stepsPage, stepPage],
  nodes: [nodesPage, nodePage], operators: [null, operatorPage], files: [filesPage, filePage],
  validators: [validatorsPage, validatorPage], disputes: [disputesPage, disputePage], money: [moneyPage],
  pools: [poolsPage], compare: [comparePage], join: [joinPage], search: [searchPage]};
const byId = id => document.getElementById(id);
const run = JSON.parse(byId("run").textContent);
const source = run ? reportSource(run) : liveSource();
let overview = null, shownHash = "", turn = 0, moving = false, newest = null;

async function renew() {
  const own = ++turn, route = parseRoute(location.hash), page = ROUTES[route.name]?.[route.id == null ? 0 : 1];
  let failure = "", content;
  try {
    const [summary, data] = await Promise.all([source.get("overview"), page?.load(source, route)]);
    if (own !== turn) return;
    overview = summary;
    newest = {hash: location.hash, view: () => page ? page.view(data, {route, overview, source, now: overview.time, renew, show})
      : nowhere()};
    content = newest.view();
  } catch (error) {
    if (error instanceof Missing) content = missing(error);
    else failure = error instanceof TypeError ? "no connection" : error.message;
    if (!source.live) console.error(error);
  }
  if (own !== turn) return;
  frame(route, page, failure);
  if (content) place(content);
  else if (shownHash !== location.hash) place([heading("Not reachable")]);
}

// Shows again what was loaded last, since more of it is there now.
function show() {
  if (newest?.hash === location.hash) place(newest.view());
}

const nowhere = () => [heading("No such page"), el("p", {}, el("a", {href: "#/"}, "To the overview"))];
const missing = error => [heading("Not found"), el("p", {class: "empty"}, words(error.message, 200)),
  el("p", {}, el("a", {href: "#/"}, "To the overview"))];

// Another page begins at its top, its heading focused, so that a screen reader says where one is; the same page only
// changes what has changed.
function place(content) {
  const main = byId("main");
  main.removeAttribute("aria-busy");
  if (shownHash !== location.hash) main.replaceChildren();
  patch(main, ...content);
  if (moving) {
    scrollTo(0, 0);
    main.querySelector("h1")?.focus({preventScroll: true});
  }
  moving = false;
  shownHash = document.documentElement.dataset.shown = location.hash;
}

function frame(route, page, failure) {
  const title = page?.title(route) ?? "No such page", name = overview?.name ?? "muster";
  document.title = `${title} · ${name.slice(0, 80)}`;
  patch(byId("name"), words(name, 40));
  for (const a of document.querySelectorAll("#nav a"))
    if (parseRoute(a.getAttribute("href")).name === route.name) a.setAttribute("aria-current", "page");
    else a.removeAttribute("aria-current");
  const {tone, word, detail} = source.live ? health(overview, failure) : {tone: "", word: "report", detail: ""};
  const live = byId("live");
  if (live.textContent !== word) live.textContent = word;  // Screen readers announce whatever is written here.
  live.className = `pill ${tone}`;
  patch(byId("notice"), detail ? el("p", {class: `banner ${tone}`}, detail) : null);
}

byId("search").addEventListener("submit", event => {
  event.preventDefault();
  location.hash = link("search", null, {q: byId("query").value});
});
byId("skip").addEventListener("click", event => {
  event.preventDefault();  // The address names the page, not a place in it.
  byId("main").focus();
});
addEventListener("hashchange", () => {
  moving = true;
  byId("main").setAttribute("aria-busy", "true");
  renew();
});
startTheme(byId("theme"));
if (!source.live) for (const a of document.querySelectorAll("#nav .live-only")) a.remove();
if (source.live) follow(renew);
else renew();
