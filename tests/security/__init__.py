"""What an attacker can try, threat by threat, as docs/explanation/threats.md lists them."""
