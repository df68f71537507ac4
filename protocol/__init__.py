from protocol.late_pairings import put_off

put_off()
