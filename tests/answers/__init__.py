"""Stories of pending pods, and the harness that judges `dovetail why` by them."""
