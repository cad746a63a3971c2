"""Where rows and chains lie: devices, shards, blocks from disk."""
