"""What all tests share."""

from hypothesis import settings

# A first call may take long on a busy machine; what is promised here is never about time.
settings.register_profile("ccfed", deadline=None)
settings.load_profile("ccfed")
