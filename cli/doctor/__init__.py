"""The checks behind `muster doctor`: each looks at one prerequisite and says how to mend it."""
