#!/usr/bin/env node
// solc.js with a memory. Whenever forge runs some of the tests it has all sources analysed to find them, also when
// nothing changed: for a mutation run, which never changes them, that was most of the time.
const { execFileSync } = require("node:child_process");
const { createHash } = require("node:crypto");
const { existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } = require("node:fs");
const { join } = require("node:path");

const version = process.argv.includes("--version");
const input = version ? "" : readFileSync(0, "utf8");
const folder = join(__dirname, "..", "cache", "solc");
const kept = join(folder, createHash("sha256").update(version ? "--version" : input).digest("hex"));
if (!existsSync(kept)) {
  const args = [join(__dirname, "solc.js"), ...(version ? ["--version"] : [])];
  const output = execFileSync(process.execPath, args, { input, maxBuffer: 1 << 30 });
  mkdirSync(folder, { recursive: true });
  writeFileSync(`${kept}.${process.pid}`, output);
  renameSync(`${kept}.${process.pid}`, kept);
}
process.stdout.write(readFileSync(kept));
