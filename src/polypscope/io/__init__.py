"""Video, images, masks, depth and tables in and out of files."""
