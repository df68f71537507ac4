// What the service's own view of the chain is worth. A chain that does not answer, or a service that lags behind it, is
// said to be that: it never reads as if somebody had cheated. Pure.
import {count, duration} from "./format.js";

const SILENT_SECONDS = 15, STILL_SECONDS = 60;

// {tone, word, detail} for the pill in the header and the banner below it.
export function health(overview, failure) {
  if (failure) return {tone: "bad", word: "offline", detail: `The pool's service does not answer (${failure}). What `
    + "stands here is as it was when it last did."};
  if (!overview) return {tone: "", word: "connecting", detail: ""};
  const {error, age, head_age: still, head} = overview.chain;
  const as_of = `Everything here is as of block ${count(head)}; it says nothing about anyone's honesty.`;
  if (error || age == null || age > SILENT_SECONDS) {
    const since = age == null ? "" : `, since ${duration(age)}`;
    return {tone: "warn", word: "chain not followed",
      detail: `The service cannot follow the chain${since}${error ? `: ${error}` : ""}. ${as_of}`};
  }
  if (still > STILL_SECONDS) return {tone: "warn", word: "chain stands still",
    detail: `The chain has had no new block for ${duration(still)}. ${as_of}`};
  return {tone: "good", word: "live", detail: ""};
}

// {tone, word, findings} on the comparison of the ledger with the chain.
export function compared(overview) {
  const {reconciliation: found, chain} = overview;
  if (!found) return {tone: "", word: "not compared with the chain yet", findings: []};
  const equal = found.ledger_matches_chain && found.escrow_balanced && !found.findings.length;
  const at = `at block ${count(found.block)}`;
  if (equal) return {tone: "good", word: `equal to the chain, to the last grain, ${at}`
    + (found.current ? "" : "; newer events are being compared"), findings: []};
  if (!found.current || chain.error)
    return {tone: "warn", word: `being compared again: the service was behind the chain ${at}`, findings: []};
  return {tone: "bad", word: `differs from the chain ${at}`, findings: found.findings};
}
