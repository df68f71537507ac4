// Where pages get their documents from: the service, or, in a report, the run that is embedded in the page.
import {embedded} from "./embedded.js";

export class Missing extends Error {}

// get(path, parameters) → the document that the service has at `v1/path`. Throws Missing for what is not there.
export function liveSource() {
  return {
    live: true,
    async get(path, parameters = {}) {
      const query = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value != null && value !== ""));
      const answer = await fetch(`v1/${path}${query.size ? `?${query}` : ""}`, {cache: "no-store"});
      if (answer.ok) return answer.json();
      const told = await answer.json().catch(() => ({}));
      const words = told.error ?? `the service answers ${answer.status}`;
      throw answer.status === 404 || answer.status === 422 ? new Missing(words) : new Error(words);
    },
  };
}

export function reportSource(run) {
  return {
    live: false,
    run,
    async get(path, parameters = {}) {
      const found = embedded(run, path, parameters);
      if (found === undefined) throw new Missing("The report holds nothing of this name.");
      return found;
    },
  };
}
