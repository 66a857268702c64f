"""Files from the internet: downloaded, verified, unpacked."""
