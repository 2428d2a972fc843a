"""What somebody who means harm can try, threat by threat, as docs/explanation/threats.md lists them."""
