#!/usr/bin/env node
// Lets forge use the solc of npm: answers --version, and compiles standard JSON from stdin to stdout.
const solc = require("solc");

if (process.argv.includes("--version")) {
  process.stdout.write(`solc, the solidity compiler commandline interface\nVersion: ${solc.version()}\n`);
} else {
  process.stdout.write(solc.compile(require("fs").readFileSync(0, "utf8")));
}
