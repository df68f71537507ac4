// A copy of the contracts and their tests in which all mutants of a sample stand ready in one build.
import { execFileSync, spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { closeSync, cpSync, existsSync, mkdirSync, openSync, readFileSync, readdirSync, rmSync, writeFileSync, writeSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { forge } from "./forge.mjs";
import { OFF, ON, SWITCH } from "./weave.mjs";

export function sourcePaths(root) {
  return readdirSync(join(root, "contracts", "src"), { recursive: true })
    .filter((name) => name.endsWith(".sol"))
    .map((name) => `contracts/src/${name}`)
    .sort();
}

// What solc's standard JSON says of sources {path: text}; without bytecode in the selection it takes seconds.
export function compile(root, sources, selection) {
  const solc = createRequire(join(root, "package.json"))("solc");
  const read = (path) => ({ contents: readFileSync(join(root, path.startsWith("@openzeppelin/") ? join("node_modules", path) : path), "utf8") });
  const input = {
    language: "Solidity",
    sources: Object.fromEntries(Object.entries(sources).map(([path, content]) => [path, { content }])),
    settings: { viaIR: true, evmVersion: "prague", outputSelection: selection },
  };
  return JSON.parse(solc.compile(JSON.stringify(input), { import: read }));
}

// Their syntax trees, and errors {file, start, end, message}.
export function analyse(root, sources) {
  const output = compile(root, sources, { "*": { "": ["ast"] } });
  const errors = (output.errors ?? []).filter((one) => one.severity === "error");
  return {
    trees: Object.fromEntries(Object.keys(sources).map((path) => [path, output.sources?.[path]?.ast])),
    errors: errors.map((one) => ({ ...one.sourceLocation, message: one.formattedMessage })),
  };
}

// All tests as one text.
export function testText(root) {
  const folder = join(root, "contracts", "test");
  const names = readdirSync(folder, { recursive: true }).filter((name) => name.endsWith(".sol")).sort();
  return names.map((name) => readFileSync(join(folder, name), "utf8")).join("\0");
}

// Tracked files alone, and only those that changed are written: forge compiles no other again.
function update(folder, root, sources) {
  const listed = execFileSync("git", ["ls-files", "--cached", "--others", "--exclude-standard", "contracts", "foundry.toml"], { cwd: root, encoding: "utf8" });
  const wanted = listed.trim().split("\n").filter((path) => existsSync(join(root, path)));
  for (const path of wanted) {
    const target = join(folder, path);
    const content = path in sources ? Buffer.from(sources[path]) : readFileSync(join(root, path));
    mkdirSync(dirname(target), { recursive: true });
    if (!existsSync(target) || !readFileSync(target).equals(content)) writeFileSync(target, content, { mode: 0o755 });
  }
  for (const part of ["src", "test"]) {
    for (const one of readdirSync(join(folder, "contracts", part), { recursive: true, withFileTypes: true })) {
      const path = join(one.parentPath, one.name);
      if (one.isFile() && !wanted.includes(path.slice(folder.length + 1))) rmSync(path);
    }
  }
}

export class Scratch {
  constructor(root, seconds) {
    this.root = root;
    this.seconds = seconds;
    this.folder = join(tmpdir(), `muster-mutants-${createHash("sha256").update(root).digest("hex").slice(0, 8)}`);
    this.switches = new Map();
  }

  // Writes the sources and builds all; says "built", or what went wrong.
  async build(sources) {
    mkdirSync(this.folder, { recursive: true });
    if (!existsSync(join(this.folder, "node_modules"))) {
      cpSync(join(this.root, "node_modules"), join(this.folder, "node_modules"), { recursive: true, verbatimSymlinks: true });
    }
    this.#find(); // and turns off what an interrupted run left on: forge keeps artifacts that it need not compile
    update(this.folder, this.root, sources);
    const { code, output } = await this.#forge(["build"], 3600);
    if (code !== 0) return output;
    this.#find();
    return "built";
  }

  // Where each switch lies in the artifacts; all are off afterwards.
  #find() {
    const out = join(this.folder, "contracts", "out");
    this.switches.clear();
    for (const name of existsSync(out) ? readdirSync(out, { recursive: true }) : []) {
      const file = join(out, name);
      if (!name.endsWith(".json") || name.startsWith("build-info")) continue;
      for (const match of readFileSync(file, "latin1").matchAll(SWITCH)) {
        const number = parseInt(match[2], 16);
        this.switches.set(number, [...(this.switches.get(number) ?? []), { file, at: match.index + 2 }]);
      }
    }
    for (const number of this.switches.keys()) this.turn(number, OFF);
  }

  turn(number, state) {
    const files = new Map();
    for (const { file, at } of this.switches.get(number) ?? []) files.set(file, [...(files.get(file) ?? []), at]);
    for (const [file, places] of files) {
      const open = openSync(file, "r+");
      for (const at of places) writeSync(open, state, at, "latin1");
      closeSync(open);
    }
  }

  // The first stage whose tests fail, with the tests: {outcome: "survived" | "killed" | "time", by}.
  async test(stages) {
    for (const stage of stages) {
      const { code, output } = await this.#forge(["test", "--fail-fast", ...stage], this.seconds);
      if (code === null) return { outcome: "time", by: stage.join(" ") };
      if (code === 0) continue;
      const failed = output.match(/^\[FAIL.*?\] (\w+)\(/m)?.[1] ?? output.match(/^\[FAIL.*/m)?.[0];
      if (!failed) throw new Error(`forge failed without a failing test:\n${output.slice(-3000)}`);
      return { outcome: "killed", by: failed };
    }
    return { outcome: "survived", by: "" };
  }

  // A mutant that is in no contract's bytecode survives: it is in code that nothing uses.
  async judge(number, stages) {
    if (!this.switches.has(number)) return { outcome: "survived", by: "in no contract" };
    this.turn(number, ON);
    try {
      return await this.test(stages);
    } finally {
      this.turn(number, OFF);
    }
  }

  #forge(args, seconds) {
    return new Promise((resolve) => {
      const env = { ...process.env, FOUNDRY_PROFILE: "lite", FOUNDRY_SOLC: "contracts/tools/solc-kept.js" };
      const child = spawn(forge(this.root), args, { cwd: this.folder, env, stdio: ["ignore", "pipe", "pipe"], detached: true });
      let output = "";
      child.stdout.on("data", (data) => (output += data));
      child.stderr.on("data", (data) => (output += data));
      const timer = setTimeout(() => process.kill(-child.pid, "SIGKILL"), seconds * 1000);
      child.on("close", (code) => {
        clearTimeout(timer);
        resolve({ code, output });
      });
    });
  }
}
