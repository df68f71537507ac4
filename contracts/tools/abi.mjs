// Writes the ABI of every contract of the suite to contracts/abi/<Contract>.json (a sorted plain array).
// With --check it only compares, and exits 1 where a committed file is stale.
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const out = join(here, "..", "out");
const abis = join(here, "..", "abi");
const names = ["MusterToken", "Params", "Stakes", "Seats", "Pools", "Court", "Juries", "Appeals", "Canaries", "NodeChallenges", "Timelock", "DilocoRuns"];
const check = process.argv.includes("--check");

const key = (x) => [x.type, x.name ?? "", JSON.stringify(x.inputs ?? [])].join("|");
const stale = [];
for (const name of names) {
  const candidates = [join(out, `${name}.sol`, `${name}.json`), join(out, `I${name}.sol`, `I${name}.json`)];
  const artifact = candidates.find(existsSync);
  if (!artifact) throw new Error(`no build of ${name}: run forge build first`);
  const { abi } = JSON.parse(readFileSync(artifact, "utf8"));
  const text = JSON.stringify(abi.sort((a, b) => (key(a) < key(b) ? -1 : 1)), null, 2) + "\n";
  const file = join(abis, `${name}.json`);
  if (existsSync(file) && readFileSync(file, "utf8") === text) continue;
  stale.push(name);
  if (!check) writeFileSync(file, text);
}
if (check && stale.length) {
  console.error(`stale ABI: ${stale.join(", ")}: run node contracts/tools/abi.mjs`);
  process.exit(1);
}
console.log(stale.length ? `wrote ${stale.join(", ")}` : "ABIs are current");
