"""joblib's own tests with one more backend: those that are run for each backend are run for fairtrial's too."""

import fairtrial.joblib

fairtrial.joblib.register()
