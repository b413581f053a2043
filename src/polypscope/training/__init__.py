"""The training loop, losses, augmentation and export in torch (needs the extra `train`)."""
