// Fails when slither found something of high or medium impact whose kind docs/reference/contracts.md does not explain.
import { readFileSync } from "node:fs";

const report = JSON.parse(readFileSync(process.argv[2], "utf8"));
const docs = readFileSync(new URL("../../docs/reference/contracts.md", import.meta.url), "utf8");
const found = (report.results?.detectors ?? []).filter((one) => ["High", "Medium"].includes(one.impact));
const counts = {};
for (const one of found) counts[one.check] = (counts[one.check] ?? 0) + 1;
const unexplained = Object.keys(counts).filter((check) => !docs.includes(`*${check}*`));
for (const [check, count] of Object.entries(counts)) {
  console.log(`${check}: ${count}${unexplained.includes(check) ? ", NOT EXPLAINED in docs/reference/contracts.md" : ""}`);
}
if (unexplained.length > 0) process.exit(1);
console.log(`slither: ${found.length} findings of high or medium impact, every kind explained`);
