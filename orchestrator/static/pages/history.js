// A run's history from what somebody saved: a history as this page saves it, or a run's whole record. Pure.

const isColumn = (values, length) => Array.isArray(values) && values.length === length
  && values.every(value => value === null || typeof value === "number");

// {name, history}; throws for anything else.
export function historyOf(saved) {
  if (Array.isArray(saved?.submissions) && Array.isArray(saved.published)) return {name: String(saved.name), history: summed(saved)};
  const {name, history} = saved ?? {};
  if (!Array.isArray(history?.steps) || !history.steps.every(Number.isInteger)) throw new Error("it names no policy steps");
  if (!Object.values(history.columns).every(values => isColumn(values, history.steps.length)))
    throw new Error("its columns are not figures");
  return {name: String(name), history: {steps: history.steps, columns: history.columns}};
}

function summed({published, rewards, submissions}) {
  const steps = published.map(one => one.step), columns = {time: published.map(one => one.time)};
  const tokens = new Map();
  for (const {step, status, units} of submissions)
    if (status === "accepted") tokens.set(step, (tokens.get(step) ?? 0) + units);
  const told = new Map(rewards.map(one => [one.step, one]));
  columns.tokens = steps.map(step => tokens.get(step) ?? 0);
  columns.reward = steps.map(step => told.get(step)?.reward ?? null);
  for (const name of new Set(rewards.flatMap(one => one.sets.map(set => set.name))))
    columns[`heldout/${name}`] = steps.map(step => told.get(step)?.sets.find(set => set.name === name)?.average ?? null);
  return {steps, columns};
}
