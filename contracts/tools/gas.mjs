// Measures every call as a whole transaction and writes benchmarks/results/gas.json; exits 1 when the worst of the states
// at 10, 1,000 and 10,000 exceeds its goal.
// Reference: medians of today's best compute protocol (lower end of a range). It has no votes, so for whole lives the
// reference is its submission plus its claim. A life ends with its committee's pay.
import { execFileSync } from "node:child_process";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { forge } from "./forge.mjs";

const root = join(dirname(fileURLToPath(import.meta.url)), "..", "..");
// reference, goal
const table = {
  submit_lane1: [227000, 104000],
  submit_lane16_per_file: [227000, 23000],
  submit_lane16_of_one_node_per_file: [227000, 18500],
  submit_with_receipt: [null, 113000],
  life_lane16: [227000 + Math.round(139000 / 16), 60000],
  life_lane1: [227000 + 139000, 557000],
  claim: [139000, 60000],
  join: [203000, 78500],
  register: [139000 + 257000, 82000],
  register_for: [null, 101000],
  join_for: [null, 107000],
  slash: [335000, 115000],
  opt_in: [null, 60000],
  challenge_open_one: [null, 420000],
  challenge_open_16: [null, 415000],
  challenge_open_256: [null, 1590000],
  challenge_jury: [null, 705000],
  challenge_upheld: [null, 334000],
  challenge_refuted: [null, 297000],
  close_committee_lane1: [null, 71000],
  close_committee_lane16: [null, 62000],
  draw_and_commit: [null, 87000],
  last_reveal_and_settle_lane1: [null, 77000],
  last_reveal_and_settle_lane16: [null, 206000],
  vote: [null, 62000],
  unpack_one: [null, 49500],
};
mkdirSync(join(root, "contracts", "cache"), { recursive: true });
mkdirSync(join(root, "benchmarks", "results"), { recursive: true });
execFileSync(forge(root), ["test", "--isolate", "--match-path", "contracts/test/Gas.t.sol", "--gas-limit", "1000000000000"], {
  env: { ...process.env, MUSTER_GAS: "true" },
  cwd: root,
  stdio: ["ignore", "ignore", "inherit"],
});
const measured = JSON.parse(readFileSync(join(root, "contracts", "cache", "gas.json"), "utf8"));
const result = {};
const exceeded = [];
for (const name of Object.keys(table).filter((key) => !(key in measured))) exceeded.push(`${name}: not measured`);
const cell = (x, n) => String(x ?? "").padStart(n);
console.log(`${"call".padEnd(22)}${cell("gas", 9)}${cell("goal", 9)}${cell("reference", 11)}${cell("at 10", 9)}${cell("1,000", 9)}${cell("10,000", 9)}`);
for (const name of Object.keys(measured).filter((key) => !/_(10|1000|10000)$/.test(key))) {
  const [reference, goal] = table[name] ?? [];
  if (!goal) exceeded.push(`${name}: no goal`);
  const scale = ["10", "1000", "10000"].map((n) => measured[`${name}_${n}`]);
  const worst = Math.max(...scale);
  result[name] = { gas: measured[name], reference: reference ?? null, goal: goal ?? null, at_10: scale[0], at_1000: scale[1], at_10000: scale[2] };
  if (worst > goal) exceeded.push(`${name}: ${worst} of ${goal}`);
  console.log(`${name.padEnd(22)}${cell(measured[name], 9)}${cell(goal, 9)}${cell(reference, 11)}${scale.map((x) => cell(x, 9)).join("")}`);
}
writeFileSync(join(root, "benchmarks", "results", "gas.json"), JSON.stringify(result, null, 2) + "\n");
if (exceeded.length) {
  console.error(`too much gas: ${exceeded.join(", ")}`);
  process.exit(1);
}
