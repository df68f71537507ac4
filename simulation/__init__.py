"""The whole network in one process, decided by one seed: real roles and contracts under a simulated clock, network and
fault injector. It replaces parts of the standard library, so it runs in an interpreter of its own."""
