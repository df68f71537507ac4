// Writes the ABI of every contract of the suite to contracts/abi/<Contract>.json (a sorted plain array), and for the
// tests, which would take minutes to compile with the contracts, an interface of it to contracts/test/interfaces.
// With --check it only compares, and exits 1 where a committed file is stale.
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { compile, sourcePaths } from "./scratch.mjs";

const root = join(dirname(fileURLToPath(import.meta.url)), "..", "..");
const names = ["MusterToken", "Params", "Stakes", "Seats", "Pools", "Court", "Juries", "Appeals", "Canaries", "NodeChallenges", "Timelock", "DilocoRuns"];
const check = process.argv.includes("--check");

const sources = Object.fromEntries(sourcePaths(root).map((path) => [path, readFileSync(join(root, path), "utf8")]));
const output = compile(root, sources, { "*": { "*": ["abi"] } });
// As forge orders the keys; solc does by the alphabet.
const ordered = (x) => {
  if (Array.isArray(x)) return x.map(ordered);
  const keys = ["type", "name", "inputs", "outputs", "stateMutability", "anonymous", "indexed", "internalType", "components"];
  if ("internalType" in x) [keys[0], keys[1]] = ["name", "type"];
  return Object.fromEntries(keys.filter((one) => one in x).map((one) => [one, typeof x[one] === "object" ? ordered(x[one]) : x[one]]));
};
const key = (x) => [x.type, x.name ?? "", JSON.stringify(x.inputs ?? [])].join("|");

// The interface that an ABI describes, its types named as in the contract's source; enums have their members from there.
function interfaceOf(name, abi) {
  const imports = new Set();
  const structs = new Map();
  const typeOf = ({ internalType, type, components }) => {
    const [, kind, owner, own, rest] = /^(?:(struct|enum|contract) )?(?:(\w+)\.)?(\w+)(.*)$/.exec(internalType ?? type);
    if (!kind) return internalType ?? type;
    if (kind === "struct") {
      const members = components.map((one) => `        ${typeOf(one)} ${one.name};\n`).join("");
      if (owner === name) structs.set(own, `    struct ${own} {\n${members}    }\n`);
    }
    const home = kind === "contract" ? own : owner;
    if (home && !names.includes(home)) return type; // OpenZeppelin's
    if (!home) imports.add(`import {${own}} from "../../src/libraries/Types.sol";\n`);
    else if (home !== name) imports.add(`import {I${home}} from "./I${home}.sol";\n`);
    return (!home || home === name ? own : kind === "contract" ? `I${own}` : `I${owner}.${own}`) + rest;
  };
  const list = (parameters, suffix) => parameters.map((one) => [typeOf(one), suffix(one), one.name].filter(Boolean).join(" ")).join(", ");
  const place = (where) => (one) => (/^(tuple|bytes$|string)|\]$/.test(one.type) ? where : "");
  const lines = abi.map((one) => {
    if (one.type === "event") return `    event ${one.name}(${list(one.inputs, ({ indexed }) => (indexed ? "indexed" : ""))});\n`;
    if (one.type === "error") return `    error ${one.name}(${list(one.inputs, () => "")});\n`;
    if (one.type !== "function") return "";
    const returned = one.outputs.length ? ` returns (${list(one.outputs, place("memory"))})` : "";
    const mutability = one.stateMutability === "nonpayable" ? "" : ` ${one.stateMutability}`;
    return `    function ${one.name}(${list(one.inputs, place("calldata"))}) external${mutability}${returned};\n`;
  });
  const enums = [...sources[`contracts/src/${name}.sol`].matchAll(/^    enum \w+ \{\n[^}]*\}\n/gm)].map(([text]) => text.replace(/^ *\/\/.*\n/gm, ""));
  return [
    "// SPDX-License-Identifier: MIT\npragma solidity 0.8.37;\n\n",
    ...[...imports].sort(),
    `\n/// @notice contracts/src/${name}.sol for the tests, written by contracts/tools/abi.mjs.\ninterface I${name} {\n`,
    ...enums,
    ...structs.values(),
    ...lines,
    "}\n",
  ].join("");
}

const stale = [];
const put = (file, text) => {
  const path = join(root, "contracts", file);
  if (existsSync(path) && readFileSync(path, "utf8") === text) return;
  stale.push(file);
  if (!check) writeFileSync(path, text);
};
for (const name of names) {
  const contract = output.contracts?.[`contracts/src/${name}.sol`]?.[name];
  if (!contract) throw new Error(`${name} does not compile: ${output.errors?.[0]?.formattedMessage}`);
  const abi = ordered(contract.abi).sort((a, b) => (key(a) < key(b) ? -1 : 1));
  put(`abi/${name}.json`, JSON.stringify(abi, null, 2) + "\n");
  put(`test/interfaces/I${name}.sol`, interfaceOf(name, abi));
}
if (check && stale.length) {
  console.error(`stale: ${stale.join(", ")}: run node contracts/tools/abi.mjs`);
  process.exit(1);
}
console.log(stale.length ? `wrote ${stale.join(", ")}` : "ABIs are current");
