"""DigitalOcean: GPU Droplets, which bill until they are destroyed."""
