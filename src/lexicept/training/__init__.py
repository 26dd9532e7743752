"""Training encoders for ranking: any head, on a frozen backbone or a whole one."""
