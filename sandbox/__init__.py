"""Running a program apart from the machine that it runs on: in a container, in bubblewrap, or plainly."""
