"""Images in, tasks out: tables, streams, transforms, feature cache and the embedded sources."""
