// Mutation testing: changes contracts/src in one place, runs the quick tests, and counts what they notice.
//   node contracts/tools/mutants.mjs [--count 300] [--seed muster] [--critical] [--jobs 2] [--only FILE] [--list]
// A random sample of all mutants, and with --critical every one in money and authorisation code besides. A mutant counts
// as killed when a test fails or runs out of time; one that does not compile is drawn again. Works in scratch copies, and
// goes on where it was interrupted. Writes benchmarks/results/mutants.json {mutants, killed, survivors, …}.
import { execFileSync, spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { appendFileSync, cpSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { forge } from "./forge.mjs";
import { mutants, sources, trees } from "./mutate.mjs";

const root = join(dirname(fileURLToPath(import.meta.url)), "..", "..");
const { values: options } = parseArgs({
  options: {
    count: { type: "string", default: "300" },
    seed: { type: "string", default: "muster" },
    critical: { type: "boolean", default: false },
    jobs: { type: "string", default: "1" },
    only: { type: "string", default: "" },
    list: { type: "boolean", default: false },
  },
});
const SECONDS = 600;
const STAGES = [["--no-match-contract", "Invariant|GasTest"], ["--match-contract", "Invariant"]];

const digest = (text) => createHash("sha256").update(text).digest("hex");
const name = (m) => `${m.file}:${m.line} ${m.operator} at ${m.start}`;

function all() {
  const found = trees(root);
  return sources(root)
    .filter((path) => path.includes(options.only))
    .flatMap((path) => mutants(path, found[path], readFileSync(join(root, path), "utf8")));
}

// The order of a lottery that anyone can repeat; critical ones all come, the others until the sample is full.
function draw(found) {
  const order = [...found].sort((a, b) => (digest(options.seed + name(a)) < digest(options.seed + name(b)) ? -1 : 1));
  const sample = order.slice(0, Number(options.count));
  return options.critical ? [...sample, ...order.slice(Number(options.count)).filter((m) => m.critical)] : sample;
}

// A copy of the tree that keeps its own build from run to run.
function scratch(job) {
  const folder = join(tmpdir(), `muster-mutants-${digest(root).slice(0, 8)}-${job}`);
  const source = (path) => !/contracts\/(out|cache)(\/|$)/.test(path);
  mkdirSync(folder, { recursive: true });
  for (const part of ["src", "test"]) rmSync(join(folder, "contracts", part), { recursive: true, force: true });
  cpSync(join(root, "contracts"), join(folder, "contracts"), { recursive: true, filter: source, preserveTimestamps: true });
  cpSync(join(root, "foundry.toml"), join(folder, "foundry.toml"));
  if (!existsSync(join(folder, "node_modules"))) {
    cpSync(join(root, "node_modules"), join(folder, "node_modules"), { recursive: true, verbatimSymlinks: true });
  }
  return folder;
}

// What a run of forge's tests says: "passed", "failed", "invalid" (it does not compile) or "time".
function test(folder, args) {
  return new Promise((resolve) => {
    const child = spawn(forge(root), ["test", "--dynamic-test-linking", ...args], {
      cwd: folder,
      env: { ...process.env, FOUNDRY_PROFILE: "lite" },
      stdio: ["ignore", "pipe", "pipe"],
      detached: true,
    });
    let output = "";
    child.stdout.on("data", (data) => (output += data));
    child.stderr.on("data", (data) => (output += data));
    const timer = setTimeout(() => process.kill(-child.pid, "SIGKILL"), SECONDS * 1000);
    child.on("close", (code) => {
      clearTimeout(timer);
      if (code === null) resolve("time");
      else if (/Compiler run failed|Encountered invalid solc|Compilation failed/i.test(output)) resolve("invalid");
      else resolve(code === 0 ? "passed" : "failed");
    });
  });
}

async function judge(folder, mutant) {
  const file = join(folder, mutant.file);
  const bytes = readFileSync(join(root, mutant.file));
  writeFileSync(file, Buffer.concat([bytes.subarray(0, mutant.start), Buffer.from(mutant.text), bytes.subarray(mutant.end)]));
  try {
    for (const stage of STAGES) {
      const said = await test(folder, ["--fail-fast", ...stage]);
      if (said !== "passed") return said === "invalid" ? said : "killed";
    }
    return "survived";
  } finally {
    writeFileSync(file, bytes);
  }
}

const found = all();
const chosen = draw(found);
if (options.list) {
  for (const m of chosen) console.log(`${name(m)}${m.critical ? " critical" : ""}: ${m.original} -> ${m.text}`);
  process.exit(0);
}
console.log(`${found.length} mutants, ${chosen.length} drawn`);
const state = digest(sources(root).map((path) => readFileSync(join(root, path), "utf8")).join("\0") + tests());
const journal = join(root, "contracts", "cache", `mutants-${state.slice(0, 12)}.jsonl`);
mkdirSync(dirname(journal), { recursive: true });
const done = new Map(existsSync(journal) ? readFileSync(journal, "utf8").trim().split("\n").filter(Boolean).map((line) => JSON.parse(line)).map((one) => [one.name, one.outcome]) : []);

function tests() {
  return execFileSync("git", ["ls-files", "-s", "contracts/test", "foundry.toml"], { cwd: root, encoding: "utf8" });
}

const queue = chosen.filter((m) => !done.has(name(m)));
async function work(job) {
  const folder = scratch(job);
  if ((await test(folder, STAGES[0])) !== "passed") throw new Error("the tests fail on the unchanged contracts");
  for (let mutant = queue.shift(); mutant; mutant = queue.shift()) {
    const outcome = await judge(folder, mutant);
    done.set(name(mutant), outcome);
    appendFileSync(journal, JSON.stringify({ name: name(mutant), outcome }) + "\n");
    if (outcome === "survived") console.log(`SURVIVED ${name(mutant)}: ${mutant.original} -> ${mutant.text}`);
    if (done.size % 20 === 0) console.log(`${done.size} of ${chosen.length}`);
  }
}
await Promise.all(Array.from({ length: Number(options.jobs) }, (_, job) => work(job)));

const judged = chosen.filter((m) => done.get(name(m)) !== "invalid");
const survivors = judged.filter((m) => done.get(name(m)) === "survived");
const critical = judged.filter((m) => m.critical);
const result = {
  mutants: judged.length,
  killed: judged.length - survivors.length,
  critical: critical.length,
  critical_killed: critical.filter((m) => done.get(name(m)) === "killed").length,
  seed: options.seed,
  survivors: survivors.map(({ file, line, operator, original, text, critical: money }) => ({ file, line, operator, original, text, critical: money })),
};
mkdirSync(join(root, "benchmarks", "results"), { recursive: true });
writeFileSync(join(root, "benchmarks", "results", "mutants.json"), JSON.stringify(result, null, 2) + "\n");
console.log(JSON.stringify({ ...result, survivors: survivors.length }));
process.exit(result.killed >= 0.95 * result.mutants && result.critical === result.critical_killed ? 0 : 1);
