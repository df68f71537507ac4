"""Files of problems in the schema of GENESYS and SYNTHETIC-1, as JSON lines named by their hash."""
