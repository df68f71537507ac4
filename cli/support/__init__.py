"""The file behind `muster support bundle`: what helps somebody else to help, without anybody's secrets."""
