"""The main job: lock, build, publish, probe and record every image spec."""
