// How to take part: what it asks, what it pays, and the commands.
import {el} from "../lib/dom.js";
import {duration, share, tokens} from "../lib/format.js";
import {card, facts, heading, lead} from "../lib/parts.js";

export const joinPage = {
  title: () => "Join",
  load: source => source.get("overview"),
  view(overview, {source}) {
    const {terms} = overview, url = source.live ? location.origin : "URL-OF-THE-POOL", {rate} = terms ?? {};
    return [
      heading("Join this pool"),
      lead(source.live ? "Lend a computer, or judge what others made. You need no permission"
        : "This is a report. Its pool may have ended; a live pool's own page names its address. You need no permission",
      terms?.invite_only ? ", but this pool's owner invites its nodes." : "."),
      terms ? card("Terms", {wide: true, note: "From the contract; they cannot change while the pool lives."}, facts([
        ["Pay", `${tokens(BigInt(rate) * 1_000_000n)} tokens per million output tokens accepted`],
        ["Stake of a node", `${tokens(terms.stake)} tokens at least, taken for fraud, returned otherwise`],
        ["Paid out", `once an outcome cannot be disputed any more: after ${duration(terms.challenge_seconds)}`],
        ["Judged by", `${terms.committee} validators drawn by lot, on ${share(terms.audit_share)} of its rows at least`],
        ["Fee of a validator", `${tokens(terms.fee)} tokens for each file`]])) : null,
      el("div", {class: "grid"},
        card("As a node", {}, commands([["Check this computer", "muster doctor"],
          ["See what it would earn, and start", `muster node up --pool ${url}`],
          ["Later", "muster node status"]])),
        card("As a validator", {}, commands([["Bond a seat and judge", `muster validator up --pool ${url}`]])),
        card("As an onlooker", {}, commands([["Judge everything again yourself; no key is needed",
          `muster verify files --pool ${url} --deployment deployment.json`],
        ["Keep this run as one page", `muster pool report --pool ${url}`]]))),
    ];
  },
};

const commands = entries => el("ol", {class: "story"}, ...entries.map(([what, command]) =>
  el("li", {}, what, el("pre", {class: "command", tabindex: 0, role: "region", "aria-label": `Command: ${command}`}, command))));
