"""What the dashboard's pages are made of, from the chain's state, heartbeats and reports (docs/orchestrator.md)."""
