"""What every test shares: how long Hypothesis searches.

`HYPOTHESIS_PROFILE=deep` (as `make prove` sets it) searches at length; the default keeps
`make test-fast` fast. No deadline: timings on a shared machine say nothing about a property.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

_QUIET = [HealthCheck.too_slow]
settings.register_profile("default", deadline=None, max_examples=50, suppress_health_check=_QUIET)
settings.register_profile("deep", deadline=None, max_examples=2000, suppress_health_check=_QUIET)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
