"""Packages of the `verifiers` library as environments: locked by hash, run apart, spoken to by lines of JSON."""
