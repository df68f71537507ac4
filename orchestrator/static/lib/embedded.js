// Answers from the run that is embedded in a report, in the form in which the service gives them. Pure.

const newestFirst = (rows, {after, limit = 25}, id) => {
  const rest = after == null ? rows : rows.filter(row => id(row) < +after);
  const page = rest.slice(0, +limit);
  return {rows: page, total: rows.length, next: rest.length > page.length ? id(page.at(-1)) : null};
};
const byPlace = (rows, {after = 0, limit = 25}) => ({rows: rows.slice(+after, +after + +limit), total: rows.length,
  next: +after + +limit < rows.length ? +after + +limit : null});
const same = (one, other) => String(one).toLowerCase() === String(other).toLowerCase();
const ORDERS = {earned: row => BigInt(row.earned), units: row => BigInt(row.units), slashed: row => BigInt(row.slashed)};

const LISTS = {
  "policy-steps": (run, asked) => newestFirst([...run.steps].reverse(), asked, row => row.step),
  "submissions": ({record}, asked) => newestFirst(record.submissions.filter(row =>
    (!asked.node || same(row.node, asked.node)) && (!asked.status || row.status === asked.status)
    && (asked.step == null || row.step === +asked.step)), asked, row => row.sequence),
  "nodes": ({record}, asked) => byPlace(ordered(record.nodes.filter(row =>
    (!asked.state || row.state === asked.state) && (!asked.operator || same(row.operator, asked.operator))),
  ORDERS[asked.order]), asked),
  "validators": ({record}, asked) => byPlace(record.validators, asked),
  "disputes": ({record}, asked) => byPlace(record.disputes, asked),
  "canaries": ({record}, asked) => byPlace(record.canaries, asked),
  "cases": ({record}, asked) => byPlace(record.cases, asked),
  "slashes": ({record}, asked) => byPlace(record.slashes, asked),
  "ledger": ({record}, asked) => byPlace(record.ledger, asked),
  "search": (run, {q}) => ({query: q, hits: hits(run, q.trim().toLowerCase())}),
  "overview": run => run.overview,
  "history": run => run.history,
};

const ONES = {
  "policy-steps": (run, id) => run.steps.find(row => row.step === +id),
  "nodes": ({record}, id) => record.nodes.find(row => same(row.address, id)),
  "validators": ({record}, id) => record.validators.find(row => same(row.address, id)),
  "submissions": (run, id) => run.details.submissions.find(row => row.sequence === +id)
    ?? run.record.submissions.find(row => row.sequence === +id),
};

const PARTS = {
  "verdicts": (run, id) => run.details.verdicts.find(row => row.sequence === +id),
  "rollouts": (run, id) => run.details.rollouts.find(row => row.sequence === +id),
};

// The document at a path such as `nodes`, `nodes/0x…` or `submissions/3/verdicts`; undefined where there is none.
export function embedded(run, path, asked) {
  const [kind, id, part] = path.split("/");
  return part ? PARTS[part]?.(run, id) : id ? ONES[kind]?.(run, id) : LISTS[kind]?.(run, asked);
}

function ordered(rows, key) {
  return key ? [...rows].sort((a, b) => key(a) < key(b) ? 1 : key(a) > key(b) ? -1 : 0) : rows;
}

function hits({record, steps}, text) {
  const found = [], number = /^#?\d{1,9}$/.test(text) ? +text.replace("#", "") : null;
  const begins = value => text.length >= 4 && value.toLowerCase().replace(/^0x/, "").startsWith(text.replace(/^0x/, ""));
  for (const row of record.submissions)
    if (row.sequence === number || begins(row.sha256) || begins(row.tx))
      found.push({kind: "submission", id: String(row.sequence), label: `file ${row.sequence}`});
  for (const row of steps)
    if (row.step === number) found.push({kind: "step", id: String(row.step), label: `policy step ${row.step}`});
  for (const row of record.nodes) {
    if (begins(row.address)) found.push({kind: "node", id: row.address, label: row.name || "node"});
    if (begins(row.operator)) found.push({kind: "operator", id: row.operator, label: "operator of nodes"});
  }
  for (const row of record.validators)
    if (begins(row.address)) found.push({kind: "validator", id: row.address, label: row.name || "owner of seats"});
  return [...new Map(found.map(hit => [hit.kind + hit.id, hit])).values()].slice(0, 20);
}
