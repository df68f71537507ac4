// Mutation testing: changes contracts/src in one place, runs the quick tests, and counts what they notice.
//   node contracts/tools/mutants.mjs [--count 300] [--seed muster] [--critical] [--only FILE] [--quick] [--again]
//     [--list]
// A random sample of all mutants, and with --critical every one in money and authorisation code besides; one that does
// not compile is drawn again. A mutant counts as killed when a test fails or runs out of time. All are built at once, each
// behind a switch (weave.mjs). Goes on where it was interrupted: while the contracts stay as they are, a kill stands as
// long as its test exists, and survivors are judged again when the tests change (--again judges everything). Without the
// invariants (--quick), what only they would notice counts as a survivor.
// Writes benchmarks/results/mutants.json {mutants, killed, equivalent, survivors, ...}; equivalent.json says which mutants
// change nothing that can be observed, and why: they count as not killed, and go through the first pass alone.
import { createHash } from "node:crypto";
import { appendFileSync, existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { mutants } from "./mutate.mjs";
import { Scratch, analyse, sourcePaths, testText } from "./scratch.mjs";
import { modifiers, weave } from "./weave.mjs";

const root = join(dirname(fileURLToPath(import.meta.url)), "..", "..");
const { values: options } = parseArgs({
  options: {
    count: { type: "string", default: "300" },
    seed: { type: "string", default: "muster" },
    critical: { type: "boolean", default: false },
    only: { type: "string", default: "" },
    quick: { type: "boolean", default: false },
    again: { type: "boolean", default: false },
    list: { type: "boolean", default: false },
  },
});
const SECONDS = 1800;
// One pass after the other, over what survived the one before: all tests of single cases, the most telling first; then
// those of random cases; then the invariants. GasTest measures what only the optimised build shows.
const FIRST = "FlowTest|RefusalsTest";
const LAST = "Invariant|Reach|GasTest";
const PASSES = [
  [["--match-contract", FIRST], ["--no-match-contract", `${FIRST}|${LAST}`, "--no-match-test", "testFuzz"]],
  [["--no-match-contract", LAST, "--match-test", "testFuzz"]],
  [["--match-contract", "Reach|Invariant"]],
];
const digest = (text) => createHash("sha256").update(text).digest("hex");

const sources = Object.fromEntries(sourcePaths(root).map((path) => [path, readFileSync(join(root, path), "utf8")]));
const { trees } = analyse(root, sources);
const found = Object.entries(sources).flatMap(([path, source]) => mutants(path, trees[path], source));
const numbers = new Map(found.map((m, number) => [m.name, number]));
const definitionOf = modifiers(trees, sources);

const woven = (list, always = null) =>
  Object.fromEntries(Object.entries(sources).map(([path, source]) => [path, weave(path, source, list, numbers, definitionOf, always)]));
const texts = (weft) => Object.fromEntries(Object.entries(weft).map(([path, { text }]) => [path, text]));

// The order of a lottery that anyone can repeat; critical ones all come, the others until the sample is full.
function draw(invalid) {
  const order = found
    .filter((m) => m.file.includes(options.only) && !invalid.has(m.name))
    .sort((a, b) => (digest(options.seed + a.name) < digest(options.seed + b.name) ? -1 : 1));
  const sample = order.slice(0, Number(options.count));
  return options.critical ? [...sample, ...order.slice(Number(options.count)).filter((m) => m.critical)] : sample;
}

// The sample, and which of it must be built by themselves because solc does not take them behind a switch.
function prepare() {
  const invalid = new Set();
  const alone = new Set();
  for (;;) {
    const chosen = draw(invalid);
    const weft = woven(chosen.filter((m) => !alone.has(m.name)));
    const { errors } = analyse(root, texts(weft));
    if (!errors.length) return { chosen, alone };
    const guilty = errors.flatMap(({ file, start, end, message }) => {
      const places = weft[file]?.places ?? [];
      const near = places.filter((one) => one.start <= end && start <= one.end);
      // Of a return value that is not assigned any more solc names the function's head: the next switch is in its body,
      // and the one after that in the next attempt.
      const next = places.filter((one) => one.start > end).sort((a, b) => a.start - b.start || b.end - a.end);
      const [narrowest] = near.length ? near.sort((a, b) => a.end - a.start - (b.end - b.start)) : next;
      if (!narrowest) throw new Error(`the woven sources do not compile: ${message}`);
      return narrowest.names;
    });
    for (const name of new Set(guilty)) {
      const mutant = found.find((m) => m.name === name);
      (analyse(root, texts(woven([mutant], name))).errors.length ? invalid : alone).add(name);
    }
  }
}

// Outcomes so far: a kill whose test is gone, and a survivor of other tests, are forgotten.
const tests = testText(root);
const journal = join(root, "contracts", "cache", `mutants-${digest(Object.values(sources).join("\0")).slice(0, 12)}.jsonl`);
function remembered() {
  const lines = existsSync(journal) && !options.again ? readFileSync(journal, "utf8").trim().split("\n").filter(Boolean) : [];
  const stands = (one) => (one.outcome === "killed" ? tests.includes(`function ${one.by}(`) : one.tests === digest(tests));
  return new Map(lines.map((line) => JSON.parse(line)).filter(stands).map((one) => [one.name, one]));
}

const equivalents = JSON.parse(readFileSync(join(root, "contracts", "tools", "equivalent.json"), "utf8"));
function reason(m) {
  const code = sources[m.file].split("\n")[m.line - 1].trim();
  return equivalents.find((one) => one.file === m.file && one.operator === m.operator && one.original === m.original && one.code === code)?.reason;
}

async function judge(chosen, alone, done) {
  const open = chosen.filter((m) => !done.has(m.name));
  if (!open.length) return;
  const note = (mutant, verdict) => {
    const one = { name: mutant.name, ...verdict, tests: digest(tests) };
    console.log(`${one.outcome}${mutant.critical ? " critical" : ""} ${one.name}: ${mutant.original} -> ${mutant.text} ${one.by}`);
    if (one.outcome === "standing") return;
    done.set(one.name, one);
    appendFileSync(journal, JSON.stringify(one) + "\n");
  };
  const scratch = new Scratch(root, SECONDS);
  const build = async (list, always) => {
    const said = await scratch.build(texts(woven(list, always)));
    if (said !== "built") throw new Error(`the woven contracts do not build:\n${said.slice(-3000)}`);
  };
  const passed = async (stages) => {
    const { outcome, by } = await scratch.test(stages);
    if (outcome !== "survived") throw new Error(`with every switch off the tests must pass, but ${by} failed`);
  };
  const together = chosen.filter((m) => !alone.has(m.name));
  const passes = options.quick ? PASSES.slice(0, -1) : PASSES;
  await build(together);
  let standing = open.filter((m) => !alone.has(m.name));
  for (const [index, stages] of passes.entries()) {
    if (standing.length) await passed(stages);
    const survivors = [];
    for (const mutant of standing) {
      const verdict = await scratch.judge(numbers.get(mutant.name), stages);
      const last = index === passes.length - 1 || verdict.outcome !== "survived" || reason(mutant);
      note(mutant, last ? verdict : { ...verdict, outcome: "standing" });
      if (!last) survivors.push(mutant);
    }
    standing = survivors;
  }
  for (const mutant of open.filter((m) => alone.has(m.name))) {
    await build([...together, mutant], mutant.name);
    note(mutant, await scratch.test(passes.flat()));
  }
}

function report(chosen, done) {
  const shown = (m) => ({ file: m.file, line: m.line, operator: m.operator, original: m.original, text: m.text, critical: m.critical, reason: reason(m) ?? "" });
  const standing = chosen.filter((m) => done.get(m.name).outcome === "survived");
  const [equivalent, survivors] = [standing.filter(reason), standing.filter((m) => !reason(m))];
  const critical = chosen.filter((m) => m.critical);
  const result = {
    mutants: chosen.length,
    killed: chosen.length - standing.length,
    timeouts: chosen.filter((m) => done.get(m.name).outcome === "time").length,
    equivalent: equivalent.length,
    critical: critical.length,
    critical_killed: critical.filter((m) => !standing.includes(m)).length,
    critical_equivalent: critical.filter((m) => equivalent.includes(m)).length,
    seed: options.seed,
    survivors: survivors.map(shown),
    equivalents: equivalent.map(shown),
  };
  console.log(JSON.stringify({ ...result, survivors: survivors.length, equivalents: equivalent.length }));
  const whole = !options.only && options.count === "300" && !options.critical;
  if (whole) {
    mkdirSync(join(root, "benchmarks", "results"), { recursive: true });
    writeFileSync(join(root, "benchmarks", "results", "mutants.json"), JSON.stringify(result, null, 2) + "\n");
  }
  return result.killed >= 0.95 * result.mutants && !survivors.some((m) => m.critical);
}

const { chosen, alone } = prepare();
if (options.list) {
  for (const m of chosen) console.log(`${m.name}${m.critical ? " critical" : ""}${alone.has(m.name) ? " alone" : ""}: ${m.original} -> ${m.text}`);
  process.exit(0);
}
console.log(`${found.length} mutants, ${chosen.length} drawn, ${alone.size} built by themselves`);
mkdirSync(dirname(journal), { recursive: true });
const done = remembered();
await judge(chosen, alone, done);
process.exit(report(chosen, done) ? 0 : 1);
