"""RunPod: pods, and what they have cost."""
