"""The dashboard's server: answers over HTTP about one cluster, in a process of its own."""
