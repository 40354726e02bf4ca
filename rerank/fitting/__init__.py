"""From labelled rankings to maps: which queries to fit on, their rankings, and the fit itself."""
