import gc

# Importing makes hundreds of thousands of objects that stay: by the default of 700, looking through them again and
# again takes a seventh of every start.
gc.set_threshold(50_000, 50, 50)
