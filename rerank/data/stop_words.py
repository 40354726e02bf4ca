"""Words so frequent in a language that they say little about the topic of a text.

English only; a language without a list has no stop words. Question words (what, how, please) are
included: they are rare in a manual, so idf would call them important.
"""

from __future__ import annotations

ENGLISH = """
a about above after again against all am an and any are aren as at be because been before
being below between both but by can cannot could couldn d did didn do does doesn doing don
down during each few for from further get got had hadn has hasn have haven having he her
here hers herself him himself his how i if in into is isn it its itself just ll m may me
might more most must mustn my myself no nor not now o of off on once only or other our
ours ourselves out over own please re s same shall shan she should shouldn so some such t
tell than that the their theirs them themselves then there these they this those through
to too under until up ve very was wasn we were weren what when where which while who whom
why will with won would wouldn y you your yours yourself yourselves
"""

STOP_WORDS = {"english": frozenset(ENGLISH.split())}
