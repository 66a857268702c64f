"""From uint8 images to the input of a ViT."""
