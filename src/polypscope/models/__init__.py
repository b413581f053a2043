"""Networks in torch, one file per paper (needs the extra `train`)."""
