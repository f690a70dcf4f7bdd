"""Multi-source adaptation on synthetic and real domains: every rival, every order, every target."""
