// Where every grain is: the pool's escrow and the account of everyone it pays.
import {el} from "../lib/dom.js";
import {tokens} from "../lib/format.js";
import {compared} from "../lib/health.js";
import {address, card, code, heading, lead, pager, pill, table} from "../lib/parts.js";

const ESCROW = [["Deposited", "funded"], ["+ recovered from stakes", "recovered"], ["= free", "free"],
  ["+ reserved for files without a final outcome", "reserved"], ["+ earned and not claimed", "unpaid"],
  ["+ fees owed to committees", "owed_fees"], ["+ pay claimed", "claimed"], ["+ fees paid", "fees"], ["+ burnt", "burnt"],
  ["+ returned to the owner", "refunded"]];
const AMOUNTS = ["earned", "pending", "locked", "vested", "claimed", "fees", "slashed"];

export const moneyPage = {
  title: () => "Money",
  async load(source, {query}) {
    const [overview, ledger] = await Promise.all([source.get("overview"), source.get("ledger", {after: query.after})]);
    return {overview, ledger};
  },
  view({overview, ledger}, {route}) {
    const check = compared(overview);
    return [
      heading("Money"),
      lead("Everything here follows from the chain's events alone, in tokens, exact to a billionth."),
      el("div", {class: "grid"},
        card("Escrow of the pool", {}, overview.escrow ? table("Escrow", [["Part", {main: true}], ["Tokens", {n: true}]],
          ESCROW.map(([label, name]) => [label, tokens(overview.escrow[name])]))
          : el("p", {class: "empty"}, "The pool is not on chain.")),
        card("Checked against the chain", {note: "Accounts, balances and transfers in the contracts, compared with what the "
          + "events say."}, el("p", {}, pill(check.word, check.tone)),
        check.findings.length ? el("ul", {}, ...check.findings.map(line => el("li", {}, line))) : null)),
      card("Accounts", {wide: true, note: "Pending: submitted and undecided. Locked: accepted, still open to dispute. Vested: "
        + "can be claimed now."}, table("Accounts", [["Account", {main: true}], ["Role"], ["Paid to"],
        ...AMOUNTS.map(name => [name[0].toUpperCase() + name.slice(1), {n: true}])],
      ledger.rows.map(one => [address(one.role === "worker" ? "node" : "validator", one.address), one.role, code(one.payee),
        ...AMOUNTS.map(name => tokens(one[name]))]), "No account yet."), pager(ledger, route)),
    ];
  },
};
