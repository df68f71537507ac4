"""`muster watch`: sees faults of one participant from outside of its process, for Prometheus and webhooks."""
