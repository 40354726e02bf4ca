"""From labelled queries to maps: which to fit on, their scored candidates, and the fit itself."""
