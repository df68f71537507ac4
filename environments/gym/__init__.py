"""reasoning_gym's procedural generators and their own scorers, as far as strangers may run them."""
