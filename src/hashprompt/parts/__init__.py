"""Building blocks that methods share: pool, routers, history, statistics, heads, losses."""
