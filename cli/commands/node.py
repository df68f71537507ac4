"""`muster node`: what a node operator does, from checking the hardware to taking the stake back."""

from cli.commands import node_rehearse, node_stake, node_status, node_up, node_work
from cli.options import Commands

app = Commands(help="Run a node: register, stake, join, earn, leave.", no_args_is_help=True)
app.command("up")(node_up.up)
app.command("check")(node_stake.check)
app.command("rehearse")(node_rehearse.rehearse)
app.command("consent")(node_stake.consent)
app.command("register")(node_stake.register)
app.command("stake")(node_stake.stake)
app.command("join")(node_work.join)
app.command("status")(node_status.status)
app.command("claim")(node_work.claim)
app.command("dispute")(node_work.dispute)
app.command("announce")(node_work.announce)
app.command("leave")(node_work.leave)
app.command("withdraw")(node_stake.withdraw)
