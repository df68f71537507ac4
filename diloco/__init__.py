"""DiLoCo: several workers train one policy and synchronise once per outer step (2311.08105, 2412.01152).

Read in this order: config, messages, state_machine, log, outer, codec, transport, inner, store, coordinator, worker,
tasks, policy, chain, main. docs/design/diloco.md explains the protocol."""
