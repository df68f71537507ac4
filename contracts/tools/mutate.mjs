// Where and how contracts/src can be mutated: pure, from solc's syntax trees.
// A mutant is {name, file, line, start, end, shape, operator, original, text, cast, critical}: `text` replaces the bytes
// start..end, a whole "expression", "statement" or "modifier". `cast` is the type that a constant had among its operands.
const SWAPS = {
  "<": ["<=", ">"], "<=": ["<", ">"], ">": [">=", "<"], ">=": [">", "<"], "==": ["!="], "!=": ["=="],
  "+": ["-"], "-": ["+"], "*": ["/"], "/": ["*"], "%": ["*"], "&&": ["||"], "||": ["&&"],
  "&": ["|"], "|": ["&"], "^": ["&"], "<<": [">>"], ">>": ["<<"],
  "+=": ["-=", "="], "-=": ["+=", "="], "*=": ["="], "|=": ["&="], "&=": ["|="],
};
// Money and authorisation: what a mutant there touches decides who may act, or how much money moves.
const CRITICAL =
  /msg\.sender|owner|operator|\bonly[A-Z]|nonReentrant|transfer|burn|mint|permit|allowance|balance|stake|bond|deposit|fee|escrow|reward|slash|forfeit|refund|earn|paid|pay|claim|units|rate|leverage|frozen|freeze|ballot|signature|recover/i;

const SKIPPED = new Set(["InlineAssembly", "EventDefinition", "ErrorDefinition"]);
const guard = (body) => body.nodeType === "RevertStatement" || (body.statements ?? [])[0]?.nodeType === "RevertStatement";
const rational = (node) => /^t_rational_/.test(node.typeDescriptions?.typeIdentifier ?? "");

export function span(node) {
  const [start, length] = node.src.split(":").map(Number);
  return [start, start + length];
}

// The type that a constant takes beside the other operand or inside a conversion; the count of a shift keeps its own.
function castOf(parent, node) {
  const target = parent?.kind === "typeConversion" ? (parent.typeDescriptions.typeString ?? "") : "";
  if (/^address/.test(target)) return "uint160";
  if (/^bytes\d+$/.test(target)) return `uint${8 * Number(target.slice(5))}`;
  if (parent?.nodeType !== "BinaryOperation" || rational(parent)) return "";
  if (/^(<<|>>)$/.test(parent.operator) && parent.rightExpression === node) return "";
  const type = parent.commonType?.typeString ?? "";
  return /^u?int\d+$/.test(type) ? type : "";
}

// The mutations of one node: [operator, start, end, text, place of the operator], the text that replaces start..end.
function swaps(node, bytes) {
  const [left, right] = node.nodeType === "Assignment" ? [node.leftHandSide, node.rightHandSide] : [node.leftExpression, node.rightExpression];
  const at = span(left)[1] + bytes.subarray(span(left)[1], span(right)[0]).indexOf(node.operator);
  return (SWAPS[node.operator] ?? []).map((swap) => [`${node.operator} to ${swap}`, at, at + node.operator.length, swap, at]);
}

function changes(node, bytes) {
  const [start, end] = span(node);
  const text = bytes.subarray(start, end).toString();
  const type = node.nodeType;
  if (type === "BinaryOperation" || type === "Assignment") return swaps(node, bytes);
  if (type === "UnaryOperation" && node.operator === "!") return [["drop !", start, start + 1, "", start]];
  if (type === "Literal" && node.kind === "number" && /^\d[\d_]*$/.test(text) && !node.subdenomination) {
    return [["number + 1", start, end, String(BigInt(text.replaceAll("_", "")) + 1n), start]];
  }
  if (type === "FunctionCall" && /^(min|max)$/.test(node.expression?.memberName ?? "")) {
    const at = span(node.expression)[1] - 3;
    return [["min to max", at, at + 3, node.expression.memberName === "min" ? "max" : "min", at]];
  }
  return [];
}

// Every mutant of one file, in order of its place.
export function mutants(path, ast, source) {
  const bytes = Buffer.from(source);
  const cut = (start, end) => bytes.subarray(start, end).toString();
  const found = [];
  const add = (shape, operator, [start, end], text, context, { at = start, cast = "" } = {}) => {
    const line = cut(0, at).split("\n").length;
    const name = `${path}:${line} ${operator} at ${at}`;
    const critical = CRITICAL.test(cut(...span(context)));
    found.push({ name, file: path, line, start, end, shape, operator, original: cut(start, end), text, cast, critical });
  };
  const conditions = (node) => {
    // A guard that always reverts is found by any test at all: it would only flatter the figures.
    if (!guard(node.trueBody)) add("expression", "if true", span(node.condition), "true", node);
    add("expression", "if false", span(node.condition), "false", node);
  };
  const statements = (node) => {
    const [start, end] = span(node);
    if (cut(end, end + 1) !== ";") return;
    add("statement", node.nodeType === "EmitStatement" ? "drop event" : "drop statement", [start, end + 1], "{}", node);
  };
  // `statement` is the innermost around the node, `whole` the largest constant expression.
  const visit = (node, parent, statement, whole) => {
    if (Array.isArray(node)) return node.forEach((one) => visit(one, parent, statement, whole));
    if (node === null || typeof node !== "object" || SKIPPED.has(node.nodeType)) return;
    const type = node.nodeType ?? "";
    const inside = /Statement$/.test(type) || type === "Return" ? node : statement;
    const constant = rational(node) ? (whole ?? { node, cast: castOf(parent, node) }) : undefined;
    if (inside) {
      const [from, to] = span(constant?.node ?? (type === "" ? inside : node));
      for (const [operator, start, end, text, at] of type ? changes(node, bytes) : []) {
        add("expression", operator, [from, to], cut(from, start) + text + cut(end, to), inside, { at, cast: constant?.cast });
      }
    }
    if (type === "IfStatement") conditions(node);
    if ((type === "ExpressionStatement" && parent?.nodeType !== "ForStatement") || type === "EmitStatement") statements(node);
    if (type === "ModifierInvocation" && node.kind === "modifierInvocation") add("modifier", "drop modifier", span(node), "", node);
    for (const [key, value] of Object.entries(node)) {
      if (key !== "typeDescriptions" && key !== "typeName") visit(value, type ? node : parent, inside, constant);
    }
  };
  visit(ast, null, null, undefined);
  return found;
}
