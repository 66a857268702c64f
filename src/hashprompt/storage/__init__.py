"""Files on disk, for all layers: atomic writes, checked JSON, locks, the cache, downloads.

Nothing here imports torch before tensors are read or written: commands that only look at JSON
start without it.
"""
