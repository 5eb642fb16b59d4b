"""The main job: plan, lock, build, probe, record, for every image spec."""
