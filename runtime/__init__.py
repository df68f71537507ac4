import protocol  # noqa: F401 - it puts imports off, before eth_account is imported
