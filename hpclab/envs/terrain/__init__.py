"""Generated ground: shapes of patches, a grid of them as MuJoCo geoms, and its surface for rays."""
