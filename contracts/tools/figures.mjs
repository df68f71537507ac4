// Computes the figures of docs/reference/contracts.md from the parameter files of the networks that muster ships, and writes them
// there: the block between the two marks, and the columns of the networks in the table of parameters.
// With --check it only compares, and exits 1 when the document says anything else.
import { execFileSync } from "node:child_process";
import { existsSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const root = join(dirname(fileURLToPath(import.meta.url)), "..", "..");
const folder = join(root, "chain", "networks");
const document = join(root, "docs", "reference", "contracts.md");
const own = join(root, ".venv", "bin", "python");
const READ = "import json, sys, tomllib; print(json.dumps(tomllib.load(open(sys.argv[1], 'rb'))))";
const toml = (path) => JSON.parse(execFileSync(existsSync(own) ? own : "python3", ["-c", READ, path], { encoding: "utf8" }));

const FILES = 64; // of a node that may be under way at once: Bounds.MAX_UNSETTLED
const BASE_UNITS = 1e9;
const AMOUNTS = ["bond", "min_bond", "malformed", "minority", "withheld", "overturn", "canary_slash", "delay_compensation"];
const PRICES = ["rate", "fee", "jury_fee", "min_stake"];
const scaled = (values, keys, by) => ({ ...values, ...Object.fromEntries(keys.filter((key) => key in values).map((key) => [key, Number(values[key]) / by])) });
// Everything in tokens and seconds.
const networks = readdirSync(folder).filter((name) => name.endsWith(".toml")).sort().reverse().map((file) => {
  const { name, suite } = toml(join(folder, file));
  const terms = scaled(toml(join(folder, "terms", basename(file))), PRICES, 1);
  return { name, terms, suite: scaled(suite, AMOUNTS, BASE_UNITS), penalties: scaled(suite.penalties, AMOUNTS, BASE_UNITS) };
});

// Text

const number = (x) => x.toLocaleString("en-US", { maximumSignificantDigits: Math.max(3, String(Math.trunc(x)).length) });
const percent = (x) => `${(100 * x).toFixed(1)}%`;
const duration = (s) => {
  for (const [unit, size] of [["days", 86400], ["h", 3600]]) if (s >= size && s % size === 0) return s === 86400 ? "1 day" : `${s / size} ${unit}`;
  return s >= 2 * 86400 ? `${(s / 86400).toFixed(1)} days` : `${number(s)} s`;
};
const row = (cells) => `| ${cells.join(" | ")} |`;
const table = (head, rows) => [row(head), `|${"---|".repeat(head.length)}`, ...rows.map(row)].join("\n");

// Figures

const choose = (n, k) => { let x = 1; for (let i = 0; i < k; ++i) x = (x * (n - i)) / (i + 1); return x; };
// Probability that more than half of k seats drawn without replacement from n are among the `bad` ones.
const capture = (n, bad, k) => {
  let p = 0;
  for (let i = Math.floor(k / 2) + 1; i <= k; ++i) p += (choose(bad, i) * choose(n - bad, k - i)) / choose(n, k);
  return p;
};
const SEATS = 300;
const bodies = ({ terms }) => [terms.committee, terms.jury, terms.appeal_jury].filter((size) => size > 0);
const sizes = [...new Set(networks.flatMap(bodies))].sort((a, b) => a - b);
const majority = ({ terms }) => Math.floor(terms.committee / 2) + 1;
const UNITS = { local: 128 * 64, "base-sepolia": 128 * 512 }; // of the files that the figures are for
const filePay = ({ name, terms }) => terms.rate * UNITS[name];
const deposit = ({ terms, penalties }) => terms.jury * terms.jury_fee + penalties.delay_compensation;
// What each seat of a majority pays that accepted a full file and is overturned.
const overturned = (n) => Math.max(n.penalties.overturn, filePay(n) / majority(n));
const reward = (n) => {
  const share = n.penalties.reward_bps / 1e4;
  const slash = (n.terms.min_stake * n.penalties.slash_bps) / 1e4;
  const fined = majority(n) * overturned(n);
  return Math.min(deposit(n), share * slash + share * fined);
};
const lockup = ({ terms: t, suite }) =>
  (9 / 8) * ((1 + 4 * t.draw_blocks) * suite.block_seconds + 2 * (t.commit_window + t.reveal_window) +
    t.challenge_window + t.receipt_window + 2 * (t.appeal_window + t.jury_commit_window + t.jury_reveal_window));
// A node challenge over `files` files: a juror's fee, its first jury's, its jurors' time to commit, and how long it can hold a
// stake: two juries, each drawn by the end of the third epoch after its seed's (Juries.sol, Voting.sol), and the time to appeal.
const CHALLENGE_FILES = 256; // NodeChallenges.MAX_FILES
const jurorFee = ({ terms: t }, files) => t.jury_fee + (files - 1) * t.fee;
const challengeFees = (n, files) => n.terms.jury * jurorFee(n, files);
const challengeTime = ({ terms: t }, files) => t.jury_commit_window + Math.ceil((files - 1) / 16) * t.commit_window;
const challengeHold = (n, files) => 2 * (4 * n.suite.epoch_blocks * n.suite.block_seconds + challengeTime(n, files) + n.terms.jury_reveal_window) + n.terms.appeal_window;
const tokens = (x) => number(Number(x.toPrecision(12)));

const captured = table(
  ["Dishonest share of seats", ...sizes.map((size) => `${size} seats`)],
  [0.1, 0.2, 1 / 3, 0.45].map((share) => [percent(share), ...sizes.map((k) => percent(capture(SEATS, Math.round(SEATS * share), k)))]),
);
const figures = {
  "committee, jury, second jury": (n) => [...bodies(n), ...(n.terms.appeal_jury ? [] : ["none"])].join(", "),
  "the last body captured at a third of the seats": (n) => percent(capture(SEATS, SEATS / 3, Math.max(...bodies(n)))),
  "what a file of 128 rows of 64 and 512 tokens earns": (n) => tokens(filePay(n)),
  "what its bound is: majority × minBond / 16": (n) => tokens((majority(n) * n.suite.min_bond) / 16),
  "overturned acceptance of such a file, a seat": (n) => tokens(overturned(n) + n.penalties.minority),
  "fee of a seat and file": (n) => tokens(n.terms.fee),
  "least fee: withheldPenalty / 100": (n) => tokens(n.penalties.withheld / 100),
  "seats that its validator group needs": (n) => number(Math.max(2 * n.terms.committee + n.terms.jury + n.terms.appeal_jury, 2 * n.terms.jury)),
  "one wrong vote costs the fees of so many files": (n) => number(n.penalties.minority / n.terms.fee),
  "accepting blindly loses above one canary in so many files (canarySlash / fee)": (n) => number(n.penalties.canary_slash / n.terms.fee),
  "an absent member costs the others' fees": (n) => tokens((n.terms.committee - 1) * n.terms.fee),
  "and pays (withheldPenalty)": (n) => tokens(n.penalties.withheld),
  "deposit of a dispute": (n) => tokens(deposit(n)),
  "bond of a node challenge, one file to 256": (n) => [1, CHALLENGE_FILES].map((k) => tokens(challengeFees(n, k) + n.penalties.delay_compensation)).join(" to "),
  "time of its jurors": (n) => [1, CHALLENGE_FILES].map((k) => duration(challengeTime(n, k))).join(" to "),
  "it holds a stake for at most": (n) => [1, CHALLENGE_FILES].map((k) => duration(challengeHold(n, k))).join(" to "),
  "upheld, its first jury takes of minStake": (n) => [1, CHALLENGE_FILES].map((k) => percent(challengeFees(n, k) / n.terms.min_stake)).join(" to "),
  "a watcher's reward R": (n) => tokens(reward(n)),
  "re-checking at the cost of a fee pays above one forged file in (R / fee)": (n) => number(Math.floor(reward(n) / n.terms.fee)),
  "minStake": (n) => tokens(n.terms.min_stake),
  "least minStake: 64 × committee × fee": (n) => tokens(FILES * n.terms.committee * n.terms.fee),
  "least minStake: jury × juryFee": (n) => tokens(n.terms.jury * n.terms.jury_fee),
  "U of such a pool": (n) => duration(lockup(n)),
  "most that U may be (unbonding)": (n) => duration(n.suite.unbonding),
  "a seat that leaves unbonds at the latest after (four epochs)": (n) => duration(4 * n.suite.epoch_blocks * n.suite.block_seconds),
};
const block = `${captured}

Probability that a body's majority is dishonest, of ${SEATS} seats. With the terms in \`chain/networks/terms/\`, in tokens:

${table(["Figure", ...networks.map((n) => `\`${n.name}\``)], Object.entries(figures).map(([name, of]) => [name, ...networks.map(of)]))}`;

// Parameters: what the networks' columns of that table have to say, by the name in its second column.

const parameters = {
  slashBps: (n) => number(n.penalties.slash_bps),
  rewardBps: (n) => number(n.penalties.reward_bps),
  minorityPenalty: (n) => tokens(n.penalties.minority),
  withheldPenalty: (n) => tokens(n.penalties.withheld),
  overturnPenalty: (n) => tokens(n.penalties.overturn),
  canarySlash: (n) => tokens(n.penalties.canary_slash),
  malformedPenalty: (n) => tokens(n.penalties.malformed),
  delayCompensation: (n) => tokens(n.penalties.delay_compensation),
  minWindow: (n) => duration(n.suite.min_window),
  blockSeconds: (n) => number(n.suite.block_seconds),
  unbonding: (n) => duration(n.suite.unbonding),
  timelock_delay: (n) => duration(n.suite.timelock_delay),
  "bond, minBond": (n) => `${tokens(n.suite.bond)}, ${tokens(n.suite.min_bond)}`,
  epochBlocks: (n) => number(n.suite.epoch_blocks),
  "committee, jury, second jury": figures["committee, jury, second jury"],
  drawBlocks: (n) => number(n.terms.draw_blocks),
  fee: (n) => tokens(n.terms.fee),
  receiptWindow: (n) => duration(n.terms.receipt_window),
};

const unknown = `${block}${Object.values(parameters).map((of) => networks.map(of))}`.match(/[^|]*(NaN|undefined)/);
if (unknown) throw new Error(`a parameter is missing in chain/networks or chain/networks/terms: ${unknown[0]}`);

const [BEGIN, END] = ["<!-- figures: node contracts/tools/figures.mjs -->", "<!-- end of figures -->"];
const text = readFileSync(document, "utf8");
const [from, to] = [text.indexOf(BEGIN), text.indexOf(END)];
if (from < 0 || to < from) throw new Error(`docs/reference/contracts.md lacks ${BEGIN} … ${END}`);
const missing = new Set(Object.keys(parameters));
const lines = `${text.slice(0, from)}${BEGIN}\n${block}\n${text.slice(to)}`.split("\n");
const columns = networks.map((n) => `\`${n.name}\``).join(" | ");
const first = lines.findIndex((line) => line.startsWith("| Where | Value |") && line.includes(columns));
for (let i = first + 1; first >= 0 && lines[i].startsWith("|"); ++i) {
  const cells = lines[i].split("|").slice(1, -1).map((cell) => cell.trim());
  if (!missing.delete(cells[1])) continue;
  cells.splice(3, networks.length, ...networks.map(parameters[cells[1]]));
  lines[i] = `|${cells.map((cell) => (cell ? ` ${cell} ` : " ")).join("|")}|`;
}
if (missing.size) throw new Error(`the table of parameters in docs/reference/contracts.md lacks ${[...missing].join(", ")}`);
const wanted = lines.join("\n");
if (wanted !== text && process.argv.includes("--check")) {
  const at = lines.findIndex((line, i) => line !== text.split("\n")[i]);
  console.error(`docs/reference/contracts.md, line ${at + 1} should read: ${lines[at]}\nrun node contracts/tools/figures.mjs`);
  process.exit(1);
}
if (wanted !== text) writeFileSync(document, wanted);
console.log(block);
