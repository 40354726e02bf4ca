"""The exceptions of this package.

ValueError
├── InputError            what the user gave cannot be used; exit code 2
│   └── NotTrackedError   the job is done, but MLflow did not take its record; exit code 3
└── StoreError            a folder that is damaged, or that must not be replaced; exit code 2
"""

from __future__ import annotations


class InputError(ValueError):
    """What the user gave cannot be used; the message says what came, what was expected, what to do.

    The command line prints it and exits with code 2.
    """


class StoreError(ValueError):
    """A folder that is not what its manifest says, or that must not be replaced."""


class NotTrackedError(InputError):
    """What a job wrote is whole and stays; MLflow did not take the record of it.

    The message says why, and which command sends it later. The command line exits with code 3.
    """
