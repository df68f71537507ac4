// Many mutants in one build: pure. Each is woven into the sources behind a switch of its own, a 32-byte constant that the
// unoptimised compiler leaves in the bytecode as it is, so that a mutant costs no compilation: turning it on changes the
// first digit of its constant in the artifacts. With every switch off the contracts do what the originals do.
import { span } from "./mutate.mjs";

const TAIL = Buffer.from("muster: a switch for a mutant").toString("hex").slice(1).padEnd(57, "0");
const LIMIT = "0x" + "8".padEnd(64, "0");
// In bytecode: PUSH32, the state of the switch, the tail, the number of the mutant.
export const SWITCH = new RegExp(`7f([6e])${TAIL}([0-9a-f]{6})`, "g");
export const OFF = "6";
export const ON = "e";

const on = (number) => `uint256(0x${OFF}${TAIL}${number.toString(16).padStart(6, "0")}) >= ${LIMIT}`;

// Every modifier's definition by the id of its syntax tree, and which one each invocation means, by "path:start".
export function modifiers(trees, sources) {
  const definitions = new Map();
  const invocations = new Map();
  const visit = (node, path) => {
    if (Array.isArray(node)) return node.forEach((one) => visit(one, path));
    if (node === null || typeof node !== "object") return;
    const cut = (one) => Buffer.from(sources[path]).subarray(...span(one)).toString();
    if (node.nodeType === "ModifierDefinition" && node.body) {
      definitions.set(node.id, { path, end: span(node)[1], parameters: cut(node.parameters) || "()", body: cut(node.body) });
    }
    if (node.nodeType === "ModifierInvocation") invocations.set(`${path}:${span(node)[0]}`, node.modifierName.referencedDeclaration);
    Object.values(node).forEach((one) => visit(one, path));
  };
  for (const [path, tree] of Object.entries(trees)) visit(tree, path);
  return (mutant) => definitions.get(invocations.get(`${mutant.file}:${mutant.start}`));
}

// One source with its mutants behind their switches, `always` applied instead of switched; and where each came to lie.
// A modifier is dropped by invoking a copy of it, which stands behind its definition.
export function weave(path, source, mutants, numbers, definitionOf, always = null) {
  const bytes = Buffer.from(source);
  const places = [];
  const edits = [];
  for (const m of mutants) {
    const edit = { ...m, number: numbers.get(m.name), always: m.name === always };
    const named = m.shape === "modifier" && !edit.always ? definitionOf(m) : undefined;
    if (m.file === path) edits.push(edit);
    if (named?.path === path) edits.push({ ...edit, shape: "copy", start: named.end, end: named.end, named });
  }
  edits.sort((a, b) => a.start - b.start || b.end - a.end);
  let text = "";
  const emit = (from, to, list) => {
    let at = from;
    while (list.length) {
      const { start, end } = list[0];
      const same = list.filter((m) => m.start === start && m.end === end);
      const inner = list.filter((m) => m.start >= start && m.end <= end && !same.includes(m));
      list = list.filter((m) => !same.includes(m) && !inner.includes(m));
      text += bytes.subarray(at, start).toString();
      const began = Buffer.byteLength(text);
      wrap(same, () => emit(start, end, inner));
      places.push({ start: began, end: Buffer.byteLength(text), names: same.map((m) => m.name) });
      at = end;
    }
    text += bytes.subarray(at, to).toString();
  };
  const copy = ({ number, original, named }) =>
    ` modifier ${original.match(/^\w+/)[0]}_${number}${named.parameters} { if (${on(number)}) { _; } else ${named.body} }`;
  const wrap = (same, original) => {
    const [first] = same;
    const fixed = same.find((m) => m.always);
    if (fixed) text += fixed.shape === "expression" ? `(${fixed.text})` : fixed.text;
    else if (first.shape === "modifier") text += first.original.replace(/^\w+/, `$&_${first.number}`);
    else if (first.shape === "copy") text += same.map(copy).join("");
    else {
      const statement = first.shape === "statement";
      const choices = same.map((m) => `${on(m.number)} ? (${m.text}) : `).join("");
      text += statement ? `{ if (${on(first.number)}) {} else { ` : `${first.cast}(${choices}(`;
      original();
      text += statement ? " } }" : "))";
    }
  };
  emit(0, bytes.length, edits);
  return { text, places };
}
