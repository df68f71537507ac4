"""The checks behind `muster doctor`: each looks at one prerequisite and says what to do if it is missing."""
