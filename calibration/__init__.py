"""Making and measuring the honest files of `muster calibrate`, each engine in a process of its own."""
