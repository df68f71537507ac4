"""Where problems come from and what answers are worth: what worker, validator and trainer must agree on bit for bit."""
