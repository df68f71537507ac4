import protocol.accounts  # noqa: F401 - before web3 imports eth_account: it keeps the recursion limit
