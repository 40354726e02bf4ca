"""From labelled rankings to maps: who is fitted on, as which rankings, and the fit itself."""
