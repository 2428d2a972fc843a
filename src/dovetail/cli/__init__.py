"""The command line. Data on stdout, talk on stderr; exit 0 done, 1 refused, 2 usage."""
