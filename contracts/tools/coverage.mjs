// Coverage of contracts/src by the tests: prints a table and exits 1 below the goals.
// via-IR without the optimizer moves some source positions; the figures are forge's own.
import { execFileSync } from "node:child_process";
import { readFileSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { forge } from "./forge.mjs";

const root = join(dirname(fileURLToPath(import.meta.url)), "..", "..");
const file = join(root, "contracts", "cache", "lcov.info");
execFileSync(
  forge(root),
  ["coverage", "--ir-minimum", "--report", "lcov", "--report-file", file, "--no-match-contract", "GasTest|Halmos", "--no-match-coverage", "node_modules|contracts/test"],
  { cwd: root, env: { ...process.env, FOUNDRY_PROFILE: "coverage" }, stdio: ["ignore", "ignore", "inherit"] },
);
const rows = [];
let row;
for (const line of readFileSync(file, "utf8").split("\n")) {
  const [key, value] = line.split(":");
  if (key === "SF") row = { file: value, LF: 0, LH: 0, BRF: 0, BRH: 0, missed: [] };
  else if (key in (row ?? {})) row[key] = Number(value);
  else if (key === "DA" && value.endsWith(",0")) row.missed.push(value.split(",")[0]);
  else if (key === "BRDA" && /,(0|-)$/.test(value)) row.missed.push(`b${value.split(",")[0]}`);
  else if (line === "end_of_record" && row.file.startsWith("contracts/src")) rows.push(row);
}
const sum = (key) => rows.reduce((total, r) => total + r[key], 0);
for (const r of rows) console.log(`${r.file.padEnd(44)} lines ${r.LH}/${r.LF} branches ${r.BRH}/${r.BRF} ${process.argv.includes("--missed") ? r.missed.join(" ") : ""}`);
const lines = (100 * sum("LH")) / sum("LF");
const branches = (100 * sum("BRH")) / sum("BRF");
console.log(JSON.stringify({ lines: Number(lines.toFixed(2)), branches: Number(branches.toFixed(2)) }));
rmSync(file, { force: true });
if (lines < 98 || branches < 95) process.exit(1);
