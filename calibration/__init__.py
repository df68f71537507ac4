"""Making and measuring the honest files of `muster pool calibrate`, each engine in a process of its own."""
