import hypothesis

# The machines that run this are shared: no deadline, and the same examples every time.
hypothesis.settings.register_profile("baryflow", deadline=None, derandomize=True, max_examples=60)
hypothesis.settings.load_profile("baryflow")
