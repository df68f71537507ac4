// Where and how contracts/src can be mutated: pure, from solc's syntax trees.
// A mutant is {file, line, start, end, operator, original, text, critical}: `text` replaces the bytes start..end.
import { readFileSync, readdirSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";

const SWAPS = {
  "<": ["<=", ">"], "<=": ["<", ">"], ">": [">=", "<"], ">=": [">", "<"], "==": ["!="], "!=": ["=="],
  "+": ["-"], "-": ["+"], "*": ["/"], "/": ["*"], "%": ["*"], "&&": ["||"], "||": ["&&"],
  "&": ["|"], "|": ["&"], "^": ["&"], "<<": [">>"], ">>": ["<<"],
  "+=": ["-=", "="], "-=": ["+=", "="], "*=": ["="], "|=": ["&="], "&=": ["|="],
};
// Money and authorisation: what a mutant there touches decides who may act, or how many grains move.
const CRITICAL =
  /msg\.sender|owner|operator|\bonly[A-Z]|nonReentrant|transfer|burn|mint|permit|allowance|balance|stake|bond|deposit|fee|grains|escrow|reward|slash|forfeit|refund|earn|paid|pay|claim|units|rate|leverage|frozen|freeze|ballot|signature|recover/i;

export function sources(root) {
  const src = join(root, "contracts", "src");
  return readdirSync(src, { recursive: true })
    .filter((name) => name.endsWith(".sol") && !name.startsWith("interfaces"))
    .map((name) => `contracts/src/${name}`)
    .sort();
}

// Syntax trees of all sources by path; imports are resolved as foundry.toml's remappings do.
export function trees(root) {
  const solc = createRequire(join(root, "package.json"))("solc");
  const read = (path) => {
    const file = path.startsWith("@openzeppelin/") ? join("node_modules", path) : path;
    return { contents: readFileSync(join(root, file), "utf8") };
  };
  const input = {
    language: "Solidity",
    sources: Object.fromEntries(sources(root).map((path) => [path, { content: read(path).contents }])),
    settings: { viaIR: true, outputSelection: { "*": { "": ["ast"] } } },
  };
  const output = JSON.parse(solc.compile(JSON.stringify(input), { import: read }));
  const errors = (output.errors ?? []).filter((one) => one.severity === "error");
  if (errors.length) throw new Error(errors.map((one) => one.formattedMessage).join("\n"));
  return Object.fromEntries(sources(root).map((path) => [path, output.sources[path].ast]));
}

const guard = (body) => body.nodeType === "RevertStatement" || (body.statements ?? [])[0]?.nodeType === "RevertStatement";

// Every mutant of one file, in order of its place.
export function mutants(path, ast, source) {
  const bytes = Buffer.from(source);
  const cut = (start, end) => bytes.subarray(start, end).toString();
  const span = (node) => {
    const [start, length] = node.src.split(":").map(Number);
    return [start, start + length];
  };
  const found = [];
  const add = (operator, start, end, text, context) => {
    const original = cut(start, end);
    const line = cut(0, start).split("\n").length;
    const [from, to] = span(context);
    found.push({ file: path, line, start, end, operator, original, text, critical: CRITICAL.test(cut(from, to)) });
  };
  const between = (left, right, operator) => {
    const start = span(left)[1];
    return start + bytes.subarray(start, span(right)[0]).indexOf(operator);
  };
  const visit = (node, statement) => {
    if (Array.isArray(node)) return node.forEach((one) => visit(one, statement));
    if (node === null || typeof node !== "object") return;
    const type = node.nodeType ?? "";
    if (type === "InlineAssembly" || type === "EventDefinition" || type === "ErrorDefinition") return;
    const inside = /Statement$/.test(type) || type === "Return" ? node : statement;
    if ((type === "BinaryOperation" || type === "Assignment") && inside) {
      const [left, right] = type === "Assignment" ? [node.leftHandSide, node.rightHandSide] : [node.leftExpression, node.rightExpression];
      const at = between(left, right, node.operator);
      for (const swap of SWAPS[node.operator] ?? []) add(`${node.operator} to ${swap}`, at, at + node.operator.length, swap, inside);
    }
    if (type === "UnaryOperation" && node.operator === "!" && inside) add("drop !", span(node)[0], span(node)[0] + 1, "", inside);
    if (type === "IfStatement") {
      const [start, end] = span(node.condition);
      // A guard that always reverts is found by any test at all: it would only flatter the figures.
      if (!guard(node.trueBody)) add("if true", start, end, "true", node);
      add("if false", start, end, "false", node);
    }
    if (type === "ExpressionStatement" || type === "EmitStatement") {
      const [start, end] = span(node);
      const whole = cut(start, end + 1).endsWith(";") ? end + 1 : end;
      add(type === "EmitStatement" ? "drop event" : "drop statement", start, whole, "{}", node);
    }
    if (type === "ModifierInvocation" && node.kind === "modifierInvocation") add("drop modifier", ...span(node), "", node);
    if (type === "Literal" && node.kind === "number" && inside && /^\d+$/.test(node.value)) {
      add("number + 1", ...span(node), String(BigInt(node.value) + 1n), inside);
    }
    if (type === "FunctionCall" && inside && /^(min|max)$/.test(node.expression?.memberName ?? "")) {
      const [, end] = span(node.expression);
      add("min to max", end - 3, end, node.expression.memberName === "min" ? "max" : "min", inside);
    }
    for (const [key, value] of Object.entries(node)) {
      if (key !== "typeDescriptions" && key !== "typeName") visit(value, inside);
    }
  };
  visit(ast, null);
  return found;
}
